"""Outages of a real S3 server, drawn from seeds: ``python scripts/outages.py --cases 100 --seed 1 --jobs 2``.

A proxy before SeaweedFS refuses, resets, swallows and delays requests, the server is killed and begun again, and so are
writers, resumptions, completions, recoveries, sinks of data sets and readers. What each was told is held against what
is there in the end. Outages last from 1 to 90 s; ``--scale 0.05`` compresses all times to a twentieth. ``--case SEED``
runs one case and tells all of it. The exit status is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
for folder in (CHECKOUT, CHECKOUT / "tests" / "plugins"):
    if find_spec("resilient_pq" if folder == CHECKOUT else "outage_cases") is None:
        sys.path.insert(0, str(folder))

from outage_bench import Bench  # noqa: E402 (see above)
from outage_cases import CaseRun  # noqa: E402
from outage_schedule import Case  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50, metavar="N", help="how many cases")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first; the others follow it")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="cases at one time, each with its server")
    parser.add_argument("--scale", type=float, default=1.0, help="what all times are multiplied by")
    parser.add_argument("--scenario", help="file, sink, recover or read, for all cases")
    parser.add_argument("--case", type=int, metavar="SEED", help="run this one, and tell all of it")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left
    seeds = range(options.seed, options.seed + options.cases) if options.case is None else [options.case]
    found: Counter[str] = Counter()
    place = threading.local()
    benches: list[Bench] = []

    def run(seed: int) -> None:
        if not hasattr(place, "bench"):
            place.bench = Bench(Path(tempfile.mkdtemp(prefix="outages-")), options.scale)
            benches.append(place.bench)
        begun = time.monotonic()
        case = CaseRun(Case.drawn(seed, options.scenario), place.bench)
        case.run()
        found.update({finding.rule for finding in case.judge.findings})
        if case.judge.findings or options.case is not None:
            print(case.report(), flush=True)
        if options.case is not None:
            print(*(f"  {seen}" for seen in case.bench.proxy.seen), sep="\n")
            print(*(f"--- output of {child.number}\n{child.output}" for child in case.children), sep="\n")
        verdict = ", ".join(sorted({finding.rule for finding in case.judge.findings})) or "ok"
        what = f"{case.case.scenario}, {time.monotonic() - begun:.1f} s, {case.num_troubled} troubled"
        print(f"{seed}: {what}: {verdict}", flush=True)

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for _ in pool.map(run, seeds):
                pass
    finally:
        for bench in benches:
            bench.close()
            shutil.rmtree(bench.folder, ignore_errors=True)
    print(f"{len(seeds)} cases; found: {dict(found) or 'nothing'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
