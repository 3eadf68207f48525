"""What goes wrong between a client and an S3 server, drawn from a seed: kinds of trouble, and when each begins.

Pure: the proxy in `outage_proxy` does it. Lengths are seconds as an operator would tell them; whoever runs a schedule
may scale them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

#: Everything the server gets in the meantime is treated so.
WINDOWS = (
    "refused",  # connections are broken, new ones refused
    "reset",  # requests are broken off, some with half their body sent
    "unavailable",  # 503, 502 or 500, with bodies of S3 or of a load balancer
    "black hole",  # nothing is answered, new connections are not made; what was open stays dead
    "frozen",  # the same, but what was open goes on afterwards
    "server killed",  # SIGKILL, and begun again with the same data
    "throttled",  # most requests are told to slow down, with Retry-After
    "expired",  # the session token is no longer accepted; a new one is there after the window
)
#: What happens to single requests.
SINGLES = (
    "lost before",  # reset, the server never sees it
    "lost after",  # the server does it, the reply is lost
    "hang before",  # never answered, the server never sees it
    "hang after",  # the server does it, and the reply never comes
    "failed after",  # the server does it, and a load balancer answers 502 or 504
    "half request",  # the connections break in the middle of the request's body
    "half reply",  # the connection breaks in the middle of the reply's body
    "hang in reply",  # the reply stops in the middle
    "trickle",  # request and reply pass slowly
    "late",  # the client sees a reset; the server gets it much later
    "error in 200",  # a completion or a copy is answered 200, with an error in the body, as S3 does; done or not
    "flipped",  # one bit of an object's bytes is another, on the way there or back
)
#: Requests by what they are for; see `outage_proxy.kind_of`.
REQUESTS = (
    "create",
    "part",
    "copy",
    "complete",
    "abort",
    "list uploads",
    "list parts",
    "put",
    "get",
    "head",
    "list",
    "delete",
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that goes wrong."""

    kind: str  # Of `WINDOWS` or `SINGLES`, or "kill" and "freeze", which are done to the client
    request: str  # Which requests are counted: one of `REQUESTS`, or "any"
    nth: int  # It begins with this one, from 1
    seconds: float = 0.0  # How long a window lasts, a late request is late, a slow one takes, or a frozen client rests
    times: int = 1  # Requests that a single trouble befalls, one after the other

    def __str__(self) -> str:
        """As a line of a report."""
        how = f"{self.seconds:g} s" if self.kind in WINDOWS else f"x{self.times}"
        return f"{self.kind} ({how}) at {self.request} {self.nth}"


@dataclass(frozen=True, slots=True)
class Dealt:
    """What a run of a client meets."""

    troubles: tuple[Trouble, ...]  # In no order
    retry_seconds: float  # How long the client goes on trying


def draw(rng: random.Random, *, likely: dict[str, int], retry_seconds: tuple[float, ...], calm: float = 0.05) -> Dealt:
    """What one run of a client meets."""
    count = 0 if rng.random() < calm else rng.choice((1, 1, 2, 2, 3, 4))
    troubles = []
    for _ in range(count):
        request = "any" if rng.random() < 0.5 else rng.choice(tuple(likely))
        most = sum(likely.values()) if request == "any" else likely[request]
        nth = rng.randint(1, max(1, most))
        if rng.random() < 0.5:
            seconds = round(rng.choice((rng.uniform(1, 10), rng.uniform(1, 30), rng.uniform(20, 90))), 1)
            kind = rng.choice(WINDOWS)
            if kind == "expired" and rng.random() < 0.5:
                seconds = 0.0  # the next token is there already
            troubles.append(Trouble(kind, request, nth, seconds))
        else:
            kind = rng.choice(SINGLES)
            seconds = round(rng.uniform(5, 60), 1)
            troubles.append(Trouble(kind, request, nth, seconds, rng.choice((1, 1, 1, 2, 3))))
    return Dealt(tuple(troubles), rng.choice(retry_seconds))


def draw_blow(rng: random.Random, likely: dict[str, int], kinds: tuple[str, ...]) -> Trouble:
    """What is done to the client itself at one of its requests: it is killed, or rests for a while."""
    request = "any" if rng.random() < 0.6 else rng.choice(tuple(likely))
    most = sum(likely.values()) if request == "any" else likely[request]
    return Trouble(rng.choice(kinds), request, rng.randint(1, max(1, most)), round(rng.uniform(2, 60), 1))


SCENARIOS = ("file", "file", "file", "sink", "sink", "recover", "read")
#: How many requests a run sends, about.
LIKELY: dict[str, dict[str, int]] = {
    "file": {"create": 1, "part": 8, "copy": 1, "complete": 2, "list uploads": 1, "list parts": 3, "get": 6, "put": 3, "head": 3},
    "sink": {"create": 3, "part": 8, "complete": 3, "list uploads": 1, "list parts": 2, "get": 2, "put": 2, "list": 1},
    "complete": {"complete": 1, "list uploads": 1, "list parts": 2, "head": 1, "get": 1},
    "recover": {"get": 6, "create": 1, "part": 3, "copy": 2, "complete": 1, "head": 2},
    "read": {"get": 8},
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One or two subjects at once, and what they meet."""

    what: str  # "file", "sink", "complete", "recover" or "read"
    subjects: int  # How many there are
    dealt: Dealt  # The troubles
    blow: Trouble | None  # What is done to a subject
    finish: bool  # Whether subjects publish what they have when they are through

    def __str__(self) -> str:
        """As a line of a report."""
        what = f"{self.subjects} x {self.what}" if self.subjects > 1 else self.what
        troubles = [*self.dealt.troubles, *([self.blow] if self.blow else [])]
        return f"{what}, {self.dealt.retry_seconds:g} s: " + ("; ".join(map(str, troubles)) or "nothing")


@dataclass(frozen=True)
class Case:
    """What is drawn for a seed."""

    seed: int
    scenario: str  # Of `SCENARIOS`
    runs: tuple[Run, ...]
    num_rows: int  # Of the source
    row_bytes: int  # Of a row, about
    row_group_rows: int  # Rows of a row group
    local: bool  # Whether a recovery writes to a local file
    damage: str  # What was done to the file that is recovered: "cut" or "flip"

    @classmethod
    def drawn(cls, seed: int, scenario: str | None = None) -> Case:
        """The case of a seed."""
        rng = random.Random(f"outage {seed}")
        scenario = scenario or rng.choice(SCENARIOS)
        row_bytes = rng.choice((3_000, 20_000, 60_000))
        total = rng.choice((4, 12, 24)) * 1_000_000
        num_rows = max(total // row_bytes, 40)
        count = {
            "file": rng.randint(1, 4),
            "sink": rng.randint(1, 3),
            "recover": rng.randint(1, 3),
            "read": 1,
        }[scenario]
        return cls(
            seed,
            scenario,
            tuple(_run(rng, scenario) for _ in range(count)),
            num_rows=num_rows,
            row_bytes=row_bytes,
            row_group_rows=max(rng.choice((10, 40, 120)), num_rows // 60),
            local=rng.random() < 0.5,
            damage=rng.choice(("cut", "flip")),
        )


def _run(rng: random.Random, scenario: str) -> Run:
    what = "complete" if scenario == "file" and rng.random() < 0.15 else scenario
    patience = (30.0, 30.0, 10.0) if what == "read" else (120.0, 120.0, 60.0, 15.0)
    dealt = draw(rng, likely=LIKELY[what], retry_seconds=patience)
    if what in ("recover", "read"):  # of 30 s, not of two minutes
        short = tuple(replace(each, seconds=each.seconds / 4) for each in dealt.troubles)
        dealt = Dealt(short, dealt.retry_seconds)
    kinds = ("kill", "kill", "kill", "freeze") if what in ("file", "sink") else ("kill",)
    blow = draw_blow(rng, LIKELY[what], kinds) if what != "read" and rng.random() < 0.6 else None
    two = rng.random() < (0.1 if scenario == "sink" else 0.2)
    return Run(what, 1 + two, dealt, blow, rng.random() < 0.7)


@dataclass
class Plan:
    """The troubles of one run, as far as they have come."""

    troubles: Sequence[Trouble]
    blow: Callable[[Trouble], None]  # Called with what is to be done to the client
    counts: Counter[str] = field(default_factory=Counter)  # Requests so far, by kind
    left: dict[Trouble, int] = field(default_factory=dict)

    def due(self, kind: str) -> list[Trouble]:
        """What begins or happens with this request."""
        self.counts.update((kind, "any"))
        found = []
        for trouble in self.troubles:
            count = self.counts[trouble.request]
            if trouble.request not in (kind, "any") or count < trouble.nth:
                continue
            left = self.left.setdefault(trouble, trouble.times)
            if left:
                self.left[trouble] -= 1
                found.append(trouble)
        return found
