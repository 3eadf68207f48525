"""Which tests reach which lines, for `mutate.py`: kept in a file, of use still when the code has changed a little."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutants import Mutant


@dataclass
class Reached:
    """Which tests reach which lines, as it was when the map was made.

    Attributes:
        tests: The names of all tests.
        seconds: How long each took.
        lines: Of each file, for each line the tests that reach it, as the bits of a number.
        sources: The text of each file then.
        package: Where the files are as they are now.
    """

    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, dict[int, int]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    package: Path = field(default_factory=Path)
    _then: dict[str, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, package: Path) -> Reached:
        """The map of a file; an empty one where there is none."""
        if not path.exists():
            return cls(package=package)
        told = json.loads(path.read_text())
        lines = {
            file: {int(line): int(bits, 16) for line, bits in found.items()} for file, found in told["lines"].items()
        }
        return cls(told["tests"], told["seconds"], lines, told["sources"], package)

    def save(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        lines = {file: {line: f"{bits:x}" for line, bits in found.items()} for file, found in self.lines.items()}
        told = {"tests": self.tests, "seconds": self.seconds, "lines": lines, "sources": self.sources}
        path.write_text(json.dumps(told))

    def _lines_then(self, file: str) -> dict[int, int]:
        """For each line of a file as it is, the number it had; for a new one that of the line before it."""
        if file not in self._then:
            now = (self.package / file).read_text().splitlines()
            before = self.sources.get(file, "").splitlines()
            blocks = difflib.SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks()
            same = {each.b + i + 1: each.a + i + 1 for each in blocks for i in range(each.size)}
            last, then = 0, {}
            for line in range(1, len(now) + 1):
                last = same.get(line, last)
                then[line] = last
            self._then[file] = then
        return self._then[file]

    def bits(self, file: str, lines: Iterable[int]) -> int:
        """The tests that reach any of some lines, as bits; those that reach any line of the file for no lines."""
        found, then = self.lines.get(file, {}), self._lines_then(file)
        bits = 0
        for line in [then.get(line, 0) for line in lines] or found:
            bits |= found.get(line, 0)
        return bits

    def tests_of(self, mutant: Mutant) -> list[tuple[str, float]]:
        """The tests that reach a mutant, in the order in which they should run, and how long each takes."""
        bits = self.bits(mutant.path, [mutant.line] if mutant.lines else []) or self.bits(mutant.path, mutant.lines)
        if not bits and not mutant.lines:
            bits = (1 << len(self.tests)) - 1  # nothing of the file runs but when it is imported
        rank: Counter[str] = Counter()
        ranked = []
        for test in sorted((i for i in range(len(self.tests)) if bits >> i & 1), key=self.seconds.__getitem__):
            name = self.tests[test].split("::")[0]
            ranked.append((rank[name], self.seconds[test], self.tests[test]))
            rank[name] += 1
        return [(test, seconds) for _, seconds, test in sorted(ranked)]

    def add(self, told: Sequence[dict[str, Any]], package: Path) -> None:
        """Add what the workers of one run of pytest noted; what was known of its files of tests is forgotten.

        Args:
            told: What each of them noted.
            package: A copy of the files as they were then.
        """
        self.package = package
        seconds: Counter[str] = Counter()
        failed: set[str] = set()
        for one in told:
            seconds.update(one["seconds"])
            failed |= set(one["failed"])
        passed = sorted(set(seconds) - failed)
        again = {test.split("::")[0] for test in seconds}
        kept = [i for i, test in enumerate(self.tests) if test.split("::")[0] not in again]
        self._renumber(kept)
        place = {test: len(self.tests) + i for i, test in enumerate(passed)}
        self.tests += passed
        self.seconds += [round(seconds[test], 3) for test in passed]
        for one in told:
            for file, lines in one["reached"].items():
                mine = self.lines.setdefault(file, {})
                for line, tests in lines.items():
                    bits = sum(1 << place[test] for test in set(tests) if test in place)
                    mine[int(line)] = mine.get(int(line), 0) | bits

    def _renumber(self, kept: Sequence[int]) -> None:
        """Keep some tests alone, and give the lines the numbers that they have in the files as they are now."""
        self.tests, self.seconds = [self.tests[i] for i in kept], [self.seconds[i] for i in kept]
        lines: dict[str, dict[int, int]] = {}
        for file in [file for file in self.lines if (self.package / file).exists()]:
            before = {line: _only(bits, kept) for line, bits in self.lines[file].items()}
            moved = {line: before.get(then, 0) for line, then in self._lines_then(file).items()}
            lines[file] = {line: bits for line, bits in moved.items() if bits}
        self.lines = lines
        self.sources = {str(file.relative_to(self.package)): file.read_text() for file in self.package.rglob("*.py")}
        self._then.clear()


def _only(bits: int, kept: Sequence[int]) -> int:
    return sum(1 << i for i, test in enumerate(kept) if bits >> test & 1)
