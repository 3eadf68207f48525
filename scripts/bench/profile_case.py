"""Where ours spends its time in one case of `compare.py`: by thread, by function, or by instruction.

Run it as ``python scripts/bench/profile_case.py "write taxi zstd:1" [--threads 2] [--repeat 5]``. A case is a work, a
data set and a codec. Without more, it prints the CPU time of each thread of the process, and the functions of Python
in which they were found by a sampler that looks at every thread each millisecond: a function that calls compiled
code stands for it. ``--callgrind`` counts instructions under valgrind instead, of the case alone, and ``--perf``
runs ``perf record``, where the kernel lets it.

(Its name is not ``profile.py``, because the standard library's cProfile would import that in the place of its own.)
"""

from __future__ import annotations

import argparse
import collections
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import datasets
from contestants import Job, ours

#: Between two looks at all threads.
SAMPLE_SECONDS = 0.001

_PERF_REPORT = ["perf", "report", "--stdio", "--no-children", "-g", "none", "--percent-limit", "0.5", "-i"]


class Sampler(threading.Thread):
    """Looks at where every other thread is, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="sampler")
        self.innermost: collections.Counter[str] = collections.Counter()
        self.anywhere: collections.Counter[str] = collections.Counter()
        self.samples = 0
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(SAMPLE_SECONDS):
            for ident, frame in sys._current_frames().items():
                if ident != self.ident and not _waits(frame):
                    self._count(frame)

    def _count(self, frame: FrameType | None) -> None:
        self.samples += 1
        self.innermost[_name_of(frame)] += 1
        seen = set()
        while frame is not None:
            seen.add(_name_of(frame))
            frame = frame.f_back
        self.anywhere.update(seen)

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()


def _waits(frame: FrameType) -> bool:
    """Whether a thread is where threads wait: in the library's own waiting, selecting or taking of work."""
    code = frame.f_code
    return Path(code.co_filename).name in ("threading.py", "selectors.py") or code.co_name == "_worker"


def _name_of(frame: FrameType | None) -> str:
    assert frame is not None
    code = frame.f_code
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.name}:{code.co_firstlineno} {code.co_qualname}"


def thread_times() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of each thread that there is, by its id in the system."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except FileNotFoundError:  # it has just ended
            continue
        fields = rest.split()
        found[int(task.name)] = (name, (int(fields[11]) + int(fields[12])) / tick)
    return found


def by_thread(work: Callable[[], Any], repeat: int) -> None:
    """Print the CPU time of each thread, and what the sampler saw."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    before = thread_times()
    sampler = Sampler()
    sampler.start()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeat):
        work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = thread_times()
    names |= {thread.native_id: thread.name for thread in threading.enumerate()}
    sampler.finish()
    print(f"{repeat} runs: {wall / repeat * 1000:,.1f} ms each, {cpu / repeat * 1000:,.1f} ms of CPU time\n")
    for ident, (name, seconds) in sorted(after.items(), key=lambda item: -item[1][1]):
        taken = seconds - before.get(ident, ("", 0.0))[1]
        if taken > 0 and ident != sampler.native_id:
            print(f"{taken / repeat * 1000:10,.1f} ms  {names.get(ident, name)}")
    for title, counts in (("innermost", sampler.innermost), ("or below", sampler.anywhere)):
        print(f"\n{title} function, share of what threads were seen at work")
        for name, count in counts.most_common(30):
            print(f"{count / max(sampler.samples, 1):8.1%}  {name}")


def under(tool: str, arguments: argparse.Namespace) -> None:
    """Run the case in a process that `tool` watches.

    Raises:
        SystemExit: The tool is not there.
    """
    if shutil.which("valgrind" if tool == "callgrind" else tool) is None:
        raise SystemExit(f"{tool} is not installed")
    kept = Path(tempfile.gettempdir()) / f"{tool}-{arguments.case.replace(' ', '-').replace(':', '')}.out"
    prefix = {
        "callgrind": [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=no",
            f"--callgrind-out-file={kept}",
        ],
        "perf": ["perf", "record", "-F", "2000", "-g", "-o", str(kept)],
    }[tool]  # fmt: skip
    command = [*prefix, sys.executable, __file__, arguments.case, "--plain", *_again(arguments)]
    subprocess.run(command, check=True)
    look = ["callgrind_annotate", str(kept)] if tool == "callgrind" else [*_PERF_REPORT, str(kept)]
    answer = subprocess.run(look, capture_output=True, text=True, check=False)
    print("\n".join(answer.stdout.splitlines()[:70]))
    print(f"\nmore of it: {' '.join(look)}")


def _again(arguments: argparse.Namespace) -> list[str]:
    return [
        f"--threads={arguments.threads}", f"--repeat={arguments.repeat}", f"--scale={arguments.scale}",
        f"--data={arguments.data}", f"--source={arguments.source}",
    ]  # fmt: skip


def plain(work: Callable[[], Any], repeat: int) -> None:
    """Just run it; valgrind counts as long as it runs, when it is watching."""
    _count(True)
    for _ in range(repeat):
        work()
    _count(False)


def _count(on: bool) -> None:
    if "vgpreload" in os.environ.get("LD_PRELOAD", ""):
        command = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
        subprocess.run(command, check=True, env={"PATH": os.environ["PATH"]})  # not under valgrind itself


def prepared(arguments: argparse.Namespace, folder: Path) -> Callable[[], Any]:
    """The function that does the case once, which it has done already."""
    kind, name, codec = arguments.case.split()
    codec, _, level = codec.partition(":")
    rows = round(datasets.DATA_SETS[name].rows * arguments.scale)
    columns = datasets.DATA_SETS[name].two_columns if kind.startswith("read-2") else None
    path = folder / "file.parquet"
    job = Job("ours", kind, path, codec, int(level) if level else None, arguments.threads, columns)
    write = ours.writing("ours", datasets.load(datasets.source(name, rows, arguments.data)), job)
    write()
    if kind == "write":
        return write
    if arguments.source == "pyarrow":
        theirs = datasets.parquet_input(name, rows, codec, job.level, arguments.data)
        shutil.copy(theirs, path)
    read = ours.reading("ours", job)
    read()
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help='such as "read taxi snappy" or "write wide zstd:1"')
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.25, help="rows, as a multiple of the set's own number")
    parser.add_argument("--source", choices=["pyarrow", "ours"], default="pyarrow", help="who wrote what is read")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER, help="where data sets are kept")
    how = parser.add_mutually_exclusive_group()
    for name in ("callgrind", "perf"):
        how.add_argument(f"--{name}", action="store_const", const=name, dest="how")
    how.add_argument("--plain", action="store_const", const="plain", dest="how", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.how in ("callgrind", "perf"):
        under(arguments.how, arguments)
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        work = prepared(arguments, Path(folder))
        (plain if arguments.how else by_thread)(work, arguments.repeat)


if __name__ == "__main__":
    main()
