"""What has to hold after a case of outages, and what of it does not."""

from __future__ import annotations

import io
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from outage_bench import Bench, Child
from outage_proxy import Seen
from outage_schedule import SINGLES, Case
from outage_subjects import row_of

#: Seconds beyond what is documented that a call may take, whatever the scale: the machine may be busy.
SLACK = 20.0
_TRACEBACK = re.compile(
    r"^(Traceback \(most recent|Fatal Python error|Exception ignored|Task exception was never)", re.M
)


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    rule: str  # Which rule it breaks, in a word or two
    text: str  # What was seen

    def __str__(self) -> str:
        """As a line of a report."""
        return f"{self.rule}: {self.text}"


class Judge:
    """Looks at one case when it is over."""

    def __init__(self, case: Case, bench: Bench, prefix: str) -> None:
        """Begin to look."""
        self.case, self.bench, self.prefix = case, bench, prefix
        self.key, self.folder = f"{prefix}/out.parquet", bench.folder / prefix
        self.findings: list[Finding] = []  # What must not be
        self.children: list[Child] = []  # The subjects so far
        self.reference: list[int] = []  # Ids of the rows that a recovery has to keep
        self._first_seen, self._first_window = len(bench.proxy.seen), len(bench.proxy.windows)

    @property
    def seen(self) -> list[Seen]:
        """The requests of the case."""
        return self.bench.proxy.seen[self._first_seen :]

    @property
    def windows(self) -> list[tuple[float, float, str]]:
        """The outages of the case."""
        return self.bench.proxy.windows[self._first_window :]

    def find(self, rule: str, text: object) -> None:
        """Note what must not be."""
        self.findings.append(Finding(rule, str(text)))

    def is_done(self) -> bool:
        """Whether what was to be made is there."""
        if self.case.scenario == "recover":
            if self.case.local:
                return (self.folder / "out.parquet").exists()
            return self.key in self.bench.server.names(self.prefix)
        if self.case.scenario == "file" and self.key in self.bench.server.names(self.prefix):
            kept = pq.read_metadata(io.BytesIO(self.bench.server.read(self.key))).metadata
            return kept is not None and kept.get(b"rpq.state") == b"complete"
        return False

    # Judging a subject.

    def judge(self, child: Child) -> None:
        """Whether a subject ended as it may, and in time."""
        if _TRACEBACK.search(child.output):
            self.find("traceback", f"{child}\n{child.output[-6000:]}")
        for (text,) in child.words("wrong"):
            self.find("wrong value", f"{child}: {text}")
        if child.struck != "kill" and child.status not in (0, 3) and child.job.what != "command":
            self.find("crashed", f"{child}\n{child.output[-3000:]}")
        if (
            child.job.what == "command"
            and child.status not in (0, 1, 4, -9, -6, 3 if child.hopeless else 0)
            and not self._rivals(child)
        ):
            self.find("exit status", f"{child}\n{child.output[-3000:]}")
        for name, begin, end in child.words("called"):
            allowed = self._allowed(child, begin, end)
            if end - begin > allowed:
                self.find("took too long", f"{child}: {name} took {end - begin:.1f} s, {allowed:.1f} s at most")
        failed = child.status == 3 or (child.job.what == "command" and child.status == 4)
        if failed and not self._may_fail(child):
            self.find("gave up", f"{child}\n{child.output[-2000:]}")

    def _rivals(self, child: Child) -> bool:
        """Whether others may have taken its upload away."""
        others = [each for each in self.children if each is not child]
        return any(each.run is child.run or each.rests or each.resting for each in others) or bool(child.rests)

    def _may_fail(self, child: Child) -> bool:
        """Whether what it met in its life is reason enough for an error."""
        # A request of a subject that was killed may complete the file after it was looked at.
        if self._rivals(child) or child.hopeless or (self.case.scenario == "file" and self.is_done()):
            return True
        begin, end = child.begun, child.ended
        met = [(stop - start, kind) for start, stop, kind in self.windows if start < end and stop > begin]
        attempt = child.job.attempt_seconds
        worst = sum(seconds + attempt for seconds, _ in met)
        for seen in self.seen:
            if seen.fate in SINGLES and begin <= seen.at <= end:
                worst += attempt if "hang" in seen.fate else 0.5
        return worst > 0.7 * child.job.patience

    def _allowed(self, child: Child, begin: float, end: float) -> float:
        """Seconds that a call may take: for each outage as long as the subject tries, and an attempt."""
        job = child.job
        attempt = 2 * job.attempt_seconds + max(5 * job.scale, 0.5)
        most = job.patience
        allowed = SLACK
        for start, stop, _ in self.windows:
            if start < end and stop > begin:
                allowed += min(stop - max(start, begin), most) + attempt
        for start, stop in child.rests:
            if start < end and stop > begin:
                allowed += stop - start
        slow = max((each.seconds for each in child.run.dealt.troubles if each.kind == "trickle"), default=0.0)
        for seen in self.seen:
            more = attempt + (slow * job.scale if seen.fate == "trickle" else 0.0)
            if seen.kind in ("part", "copy") and seen.fate and not seen.delivered:
                more += job.undecided_grace  # it may arrive so long
            if (seen.fate in SINGLES or more > attempt) and begin - more <= seen.at <= end:
                allowed += more
        return allowed

    def judge_uploads(self) -> None:
        """Every upload that is open, and whose beginning was told, is named by somebody who was not killed."""
        if self.case.scenario == "read":
            return
        named = self._told()
        for name in self.bench.server.names(self.prefix):
            if name.endswith(".rpq-epoch"):
                named += self.bench.server.read(name).decode(errors="replace")
        if any(child.struck or not child.job.finish for child in self.children):
            return
        told = {seen.upload_id for seen in self.seen if seen.upload_id and seen.delivered}
        for key, upload_id in self.bench.server.uploads(self.prefix):
            if upload_id in told and upload_id not in named:
                self.find("upload not named", f"{key} {upload_id}")

    def _told(self) -> str:
        """All that the subjects said and printed."""
        return "\n".join(child.output + str(child.said) for child in self.children)

    # Looking at what is there.

    def look(self) -> None:
        """Hold what is there against what was told."""
        server = self.bench.server
        if self.case.scenario in ("file", "recover"):
            kept = {self.key} if not (self.case.scenario == "recover" and self.case.local) else set()
            kept |= {f"{self.prefix}/damaged.parquet"} if self.case.scenario == "recover" else set()
            if missing := kept - set(server.names(self.prefix)):
                self.find("nothing there", missing)
                return
            if more := set(server.names(self.prefix)) - kept:
                self.find("objects left", more)
        told = self._told()
        left = [upload_id for _, upload_id in server.uploads(self.prefix) if upload_id not in told]
        excused = (self._came_too_late, self._was_given_up)
        if uploads := [upload_id for upload_id in left if not any(known(upload_id) for known in excused)]:
            rule = "uploads left after a kill" if any(child.struck for child in self.children) else "uploads left"
            self.find(rule, [(upload, self._origin(upload)) for upload in uploads])
        if self.case.scenario == "file":
            self._look_at_file(server.read(self.key))
        elif self.case.scenario == "sink":
            self._look_at_files()
        elif self.case.scenario == "recover":
            self._look_at_recovered()

    def _came_too_late(self, upload_id: str) -> bool:
        """Whether the server got the request for it when the file was completed already: nobody looks then."""
        late = [seen for seen in self.seen if seen.upload_id == upload_id and seen.fate == "late"]
        ends = [seen.at for seen in self.seen if seen.kind == "complete"]
        return any(seen.at < end < seen.asked_at for seen in late for end in ends)

    def _was_given_up(self, upload_id: str) -> bool:
        """Whether its writer had removed the epoch object to abort the upload, and was killed before it could."""
        made = [seen.at for seen in self.seen if seen.upload_id == upload_id and seen.kind == "create"]
        released = [
            seen.at for seen in self.seen if seen.kind == "delete" and ".rpq-epoch" in seen.line and seen.delivered
        ]
        killed = [child.ended for child in self.children if child.struck == "kill"]
        return any(begun < end < kill for begun in made for end in released for kill in killed)

    def _origin(self, upload_id: str) -> str:
        made = [str(seen) for seen in self.seen if seen.upload_id == upload_id]
        return made[0] if made else "by the last subject"

    def _look_at_file(self, data: bytes) -> None:
        table = pq.read_table(io.BytesIO(data))
        self._compare(table, list(range(self.case.num_rows)))
        by = table["by"].to_pylist()
        for child in self.children:
            if not (began := child.words("began")):
                continue
            first, stored = began[0][0], max((each[0] for each in child.words("stored")), default=0)
            self._held(child, by[first:stored], max(stored - first, 0), f"rows {first} to {stored}")

    def _held(self, child: Child, found: Sequence[int], count: int, what: str) -> None:
        if len(found) < count or set(found) - {child.number}:
            others = sorted(set(found) - {child.number})
            self.find(
                "stored and lost",
                f"{child}: was told that {what} are stored; there are {len(found)}, of {others} too",
            )

    def _compare(self, table: Any, wanted: Sequence[int]) -> None:
        numbers = table["id"].to_pylist()
        if numbers != wanted:
            doubled = len(numbers) - len(set(numbers))
            lacking = sorted(set(wanted) - set(numbers))[:3]
            self.find("rows differ", f"{len(numbers)} rows of {len(wanted)}, {doubled} doubled, lacking {lacking}")
        noise = table["noise"].to_pylist()
        if any(value != row_of(number, self.case.row_bytes) for number, value in zip(numbers, noise, strict=True)):
            self.find("wrong value", "in the file that is there in the end")

    def _look_at_files(self) -> None:
        found: dict[str, Any] = defaultdict(list)
        for name in sorted(self.bench.server.names(self.prefix)):
            if not name.endswith(".parquet"):
                self.find("objects left", name)
                continue
            found[name.split("/")[1]].append(pq.read_table(io.BytesIO(self.bench.server.read(name))))
        for partition in ("kind=k0", "kind=k1"):
            tables = found[partition]
            numbers = [number for table in tables for number in table["id"].to_pylist()]
            wanted = [number for number in range(self.case.num_rows) if f"kind=k{number % 2}" == partition]
            if numbers != wanted:
                doubled = len(numbers) - len(set(numbers))
                lacking = sorted(set(wanted) - set(numbers))[:3]
                self.find(
                    "rows differ",
                    f"{partition}: {len(numbers)} of {len(wanted)}, {doubled} doubled, lacking {lacking}",
                )
            by = [tag for table in tables for tag in table["by"].to_pylist()]
            for child in self.children:
                self._held_in_partition(child, partition, by)

    def _held_in_partition(self, child: Child, partition: str, by: Sequence[int]) -> None:
        if not (began := child.words("began")):
            return
        told: list[Mapping[str, int]] = [each[-1] for word in ("stored", "checkpoint") for each in child.words(word)]
        first = began[0][0].get(partition, 0)
        stored = max((each.get(partition, 0) for each in told), default=0)
        self._held(child, by[first:stored], max(stored - first, 0), f"{partition} rows {first} to {stored}")

    def _look_at_recovered(self) -> None:
        if self.case.local:
            if left := sorted(set(os.listdir(self.folder)) - {"out.parquet"}):
                self.find("files left", left)
            if not self.is_done():
                self.find("nothing there", "out.parquet")
                return
            data = (self.folder / "out.parquet").read_bytes()
        else:
            data = self.bench.server.read(self.key)
        self._compare(pq.read_table(io.BytesIO(data)), self.reference)
