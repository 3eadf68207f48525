"""Classes whose methods are made late are those that `dataclasses.dataclass` makes at once."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import inspect
import os
import pickle
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

import resilient_pq
from resilient_pq import lazy_dataclass
from resilient_pq.lazy_dataclass import dataclass

Decorator = Callable[..., Callable[[type], type]]


def examples(made_by: Decorator) -> dict[str, type]:
    @made_by(frozen=True, slots=True, order=True)
    class Base:
        number: int
        names: list[str] = field(default_factory=list, compare=False)
        KIND: ClassVar[str] = "base"

    @made_by(frozen=True, slots=True)
    class Derived(Base):
        more: int = 3
        _: KW_ONLY
        last: str = "z"

        def __post_init__(self) -> None:
            if self.more < 0:
                raise ValueError("too few")

    @made_by(slots=True)
    class Changing:
        number: int
        shown: int = field(default=1, repr=False)

    @made_by(frozen=True, slots=True, eq=False, repr=False)
    class Own:
        number: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int) and other == self.number

        def __hash__(self) -> int:
            return 5

    @made_by(slots=True)
    class Comparing:  # noqa: PLW1641 (that is what is asked)
        number: int

        def __eq__(self, other: object) -> bool:
            return True

    @made_by(frozen=True)
    class Plain:
        number: int

    found = {name: kind for name, kind in locals().items() if isinstance(kind, type)}
    assert len(found) == 6
    return found


def outcome(action: Callable[[Any], Any], kind: type) -> str:
    try:
        return repr(action(kind))
    except (TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "one argument": lambda kind: kind(1),
    "none": lambda kind: kind(),
    "more": lambda kind: kind(1, ["a"], -1),
    "keyword": lambda kind: kind(1, last="a"),
    "fields": lambda kind: [(one.name, one.default, one.kw_only, one.compare) for one in dataclasses.fields(kind)],
    "replace": lambda kind: dataclasses.replace(kind(1), number=2),
    "asdict": lambda kind: dataclasses.asdict(kind(1)),
    "is_dataclass": dataclasses.is_dataclass,
    "equal": lambda kind: (kind(1) == kind(1), kind(1) == kind(2), kind(1) != kind(1), kind(1) == 1),
    "less": lambda kind: kind(1) < kind(2),
    "hash": lambda kind: hash(kind(1)) == hash(kind(1)),
    "hashable": lambda kind: kind.__hash__ is None,
    "hash of an instance that was not initialized": lambda kind: hash(kind.__new__(kind)),
    "frozen": lambda kind: setattr(kind(1), "number", 3),
    "deleted": lambda kind: delattr(kind(1), "number"),
    "shown without values": lambda kind: repr(kind.__new__(kind)),
    "signature": inspect.signature,
    "match": lambda kind: kind.__match_args__,
    "slots": lambda kind: vars(kind).get("__slots__"),
    "names": lambda kind: (kind.__name__, kind.__qualname__, kind.__module__),
    "copied": lambda kind: copy.copy(kind(1)),
    "state": lambda kind: kind.__getstate__(kind(1)),
    "constant": lambda kind: getattr(kind, "KIND", None),
    "members": lambda kind: (kind(1), sorted(vars(kind))),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_each_first_use_gives_what_a_dataclass_gives(action: str) -> None:
    lazy, eager = examples(dataclass), examples(dataclasses.dataclass)
    for name, kind in eager.items():
        if (action, name) == ("hash of an instance that was not initialized", "Comparing"):
            continue  # says in other words that it cannot be hashed
        assert outcome(ACTIONS[action], lazy[name]) == outcome(ACTIONS[action], kind), name


def test_methods_are_made_when_one_is_asked_for() -> None:
    kind: Any = examples(dataclass)["Derived"]
    assert isinstance(vars(kind)["__init__"], lazy_dataclass._Pending)
    assert kind(1) == kind(1)
    assert not [name for name, member in vars(kind).items() if isinstance(member, lazy_dataclass._Pending)]
    with pytest.raises(FrozenInstanceError):
        kind(1).more = 2


@dataclass(frozen=True, slots=True)
class Pickled:
    number: int
    text: str = "a"


def test_a_frozen_one_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(3, "b"))) == Pickled(3, "b")


def test_threads_that_come_together_get_whole_classes() -> None:
    for _ in range(50):
        kinds: Any = examples(dataclass)
        together, failed = threading.Barrier(8), []

        def use(kinds: Any = kinds, together: threading.Barrier = together, failed: list[str] = failed) -> None:
            together.wait()
            if (shown := outcome(lambda kind: kind(2), kinds["Derived"])) != SHOWN:
                failed.append(shown)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    kind: Any = examples(dataclass)["Derived"]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lazy_dataclass._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(0 if repr(kind(2)) == SHOWN else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert status == 0


SHOWN = repr(examples(dataclasses.dataclass)["Derived"](2))


def test_all_classes_of_the_package_have_the_slots_of_their_fields() -> None:
    checked = 0
    for module in pkgutil.walk_packages(resilient_pq.__path__, "resilient_pq."):
        if module.name.endswith("__main__"):
            continue
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(module.name)
        found = vars(sys.modules[module.name]) if module.name in sys.modules else {}
        for kind in found.values():
            if not isinstance(kind, type) or kind.__module__ != module.name or "__slots__" not in vars(kind):
                continue
            if "__dataclass_fields__" not in vars(kind):
                continue
            names = {one.name for one in dataclasses.fields(kind)}
            inherited = {name for base in kind.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
            assert set(vars(kind)["__slots__"]) == names - inherited, kind
            assert names <= set(dir(kind)), kind
            checked += 1
    assert checked > 300
