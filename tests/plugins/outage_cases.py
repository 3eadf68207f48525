"""Cases of outages, run.

A case is a chain of runs of one scenario. In each the subjects, one or two at once, meet troubles; then one that meets
none comes to the end. Whatever a subject was told is held against what is there in the end.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from file_bytes import content, file_bytes
from outage_bench import Bench, Child
from outage_oracle import Finding, Judge
from outage_schedule import Case, Dealt, Run, Trouble
from outage_subjects import Job, rows

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

BUCKET = "outages"


class CaseRun:
    """One case, run on a bench."""

    def __init__(self, case: Case, bench: Bench) -> None:
        """Prepare it."""
        self.case, self.bench = case, bench
        self.judge = Judge(case, bench, f"{case.seed}-{os.urandom(3).hex()}")  # Looks at it
        self.children, self.key, self.folder = self.judge.children, self.judge.key, self.judge.folder
        self.folder.mkdir()
        self.state: dict[str, Any] = {"offset": 0, "rows": {}}

    # Running.

    def run(self) -> list[Finding]:
        """Run it, and look."""
        self._prepare()
        for number, run in enumerate(self.case.runs):
            if self.judge.is_done():
                break
            self._run_once(number, run)
        self.bench.proxy.mend()
        for child in self.children:
            child.wake()
        self._end(self.children)
        for child in self.children:
            self.judge.judge(child)
        self.judge.judge_uploads()
        # A restart finds a complete file, too, and removes what was left beside it.
        if not self.judge.is_done() or self.case.scenario == "file":
            self._finish()
        self.judge.look()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.judge.findings

    def _prepare(self) -> None:
        case = self.case
        if case.scenario not in ("recover", "read"):
            return
        data = asyncio.run(_made(case))
        if case.scenario == "recover":
            data = _damaged(data, case)
            self.judge.reference = asyncio.run(_recovered(data))
            self.bench.server.put(f"{self.judge.prefix}/damaged.parquet", data)
        else:
            self.bench.server.put(self.key, data)

    def _job(self, run: Run, tag: int, *, clean: bool = False) -> Job:
        case, bench = self.case, self.bench
        port = bench.server.port
        job = Job(
            what="command" if run.what in ("complete", "recover") else run.what,
            url=f"s3://{BUCKET}/{self.judge.prefix}" if run.what == "sink" else f"s3://{BUCKET}/{self.key}",
            endpoint_url=f"http://127.0.0.1:{port}" if clean else bench.proxy.endpoint_url,
            environment=bench.environment,
            errors=self.folder.parent / f"{self.judge.prefix}.{tag}.errors",
            scale=bench.scale,
            retry_seconds=run.dealt.retry_seconds,
            tag=tag,
            num_rows=case.num_rows,
            row_bytes=case.row_bytes,
            row_group_rows=case.row_group_rows,
            seed=case.seed * 100 + tag,
            finish=clean or run.finish,
            replay_from=self.state["rows"],
            offset=self.state["offset"],
        )
        return replace(job, command=self._command(run, job)) if job.what == "command" else job

    def _command(self, run: Run, job: Job) -> tuple[str, ...]:
        if run.what == "complete":
            words = ["uploads", "complete", job.url]
        else:
            to = str(self.folder / "out.parquet") if self.case.local else job.url
            words = ["recover", f"s3://{BUCKET}/{self.judge.prefix}/damaged.parquet", to]
        config = json.dumps(job.storage_options["config_kwargs"])
        more = ["--endpoint-url", job.endpoint_url, "--storage-option", f"config_kwargs={config}"]
        if job.policy:
            more += ["--retry-for", str(job.patience)]
        return (*words, *more)

    def _run_once(self, number: int, run: Run) -> None:
        bench = self.bench
        started: list[Child] = []
        chooser = random.Random(self.case.seed * 1000 + number)

        def strike(blow: Trouble) -> None:
            alive = [child for child in started if child.alive]
            if alive:
                chooser.choice(alive).strike(blow, bench.scale)

        troubles = [*run.dealt.troubles, *([run.blow] if run.blow else [])]
        bench.proxy.begin(troubles, seed=self.case.seed, blow=strike)
        told = any(rows for child in self.children for (rows,) in child.words("stored") if run.what == "complete")
        completable = told and bool(bench.server.uploads(self.judge.prefix))
        for _ in range(run.subjects):
            tag = len(self.children) + 1
            started.append(Child(self._job(run, tag), run, tag))
            started[-1].hopeless = run.what == "complete" and not completable
            self.children.append(started[-1])
        self._end(started, leave_resting=True)
        for child in started:
            for offset, counted in child.words("checkpoint"):
                if offset >= self.state["offset"]:
                    self.state = {"offset": offset, "rows": counted}

    def _end(self, children: Sequence[Child], *, leave_resting: bool = False) -> None:
        """Wait for them; those that rest may go on resting."""
        for child in children:
            run, scale = child.run, self.bench.scale
            troubles = sum(each.seconds + 2 * each.times * child.job.attempt_seconds for each in run.dealt.troubles)
            limit = time.monotonic() + 90 + (troubles + 6 * run.dealt.retry_seconds) * scale
            while child.alive and time.monotonic() < limit and not (leave_resting and child.resting):
                time.sleep(0.02)
            if leave_resting and child.resting:
                continue
            if not child.wait(0.5):
                self.judge.find("hangs", f"{child}; since {self._unfinished_call(child)}\n{child.output[-6000:]}")

    def _unfinished_call(self, child: Child) -> str:
        begun = [each for each in child.said if each[0] in ("calling", "called")]
        if begun and begun[-1][0] == "calling":
            return f"{begun[-1][1]} for {time.monotonic() - begun[-1][2]:.1f} s"
        return "no call"

    def _finish(self) -> None:
        """One more subject, which meets nothing."""
        run = Run(self.case.scenario, 1, Dealt((), 120.0), None, True)
        tag = len(self.children) + 1
        child = Child(self._job(run, tag, clean=True), run, tag)
        self.children.append(child)
        self._end([child])
        self.judge.judge(child)
        if child.status not in (0, 1 if child.job.what == "command" else 0) and not self.judge.is_done():
            self.judge.find("cannot go on", f"{child}\n{child.output[-3000:]}")

    @property
    def num_troubled(self) -> int:
        """Requests that something was done to."""
        return sum(bool(seen.fate) for seen in self.judge.seen)

    def report(self) -> str:
        """All that is known of it, for a person."""
        lines = [f"seed {self.case.seed}: {self.case.scenario}, {self.case.num_rows} rows of {self.case.row_bytes}"]
        lines += [f"  run {run}" for run in self.case.runs]
        lines += [f"  {child}" for child in self.children]
        lines += [f"  window {kind} {stop - start:.1f} s" for start, stop, kind in self.judge.windows]
        fates = Counter(seen.fate for seen in self.judge.seen if seen.fate)
        lines += [f"  {len(self.judge.seen)} requests, of them {dict(fates)}"]
        lines += [f"  FOUND {finding}" for finding in self.judge.findings]
        return "\n".join(lines)


async def _made(case: Case) -> bytes:
    table = rows(0, case.num_rows, case.row_bytes, 0)
    return await file_bytes(table, row_group_rows=case.row_group_rows, compression="none")


def _damaged(data: bytes, case: Case) -> bytes:
    at = len(data) * (60 + case.seed % 35) // 100
    if case.damage == "cut":
        return data[:at]
    spoiled = bytearray(data)
    spoiled[at] ^= 16
    return bytes(spoiled)


async def _recovered(data: bytes) -> list[int]:
    """Ids of the rows that a recovery keeps where nothing else goes wrong."""
    store = MemoryStore()
    await store.put("damaged", data)
    await rpq.recover((store, "damaged"), (store, "saved"))
    kept = await content(store, "saved")
    numbers: list[int] = pq.read_table(io.BytesIO(kept))["id"].to_pylist()
    return numbers
