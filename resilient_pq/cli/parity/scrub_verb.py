"""`rpq scrub`: objects proven again and again, within a budget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.cli.many_verbs import ManyOptions, MaxFilesAnywhere, Scheduler, Urls, WorkersTimeout, open_worker
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.cli.shared_options import parse_age, parse_size
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.io.location import shown
from resilient_pq.shell_commands import command


def _parse_rate(text: str) -> int:
    """Bytes in a second: ``50MB/s``, ``50MB`` or ``8MiB/s``."""
    rate = parse_size(re.sub(r"/s(ec)?$", "", text.strip()))
    if rate < 1:
        raise typer.BadParameter(f"{text!r} is no rate; write 50MB/s")
    return rate


@verb(
    "scrub",
    "all that was read is as it was, or was healed",
    "an object is damaged",
    "rpq scrub s3://bucket/events/ --state events.scrub --budget 50MB/s",
    "rpq scrub lake/ --state lake.scrub --every 7d --heal --replica s3://backup/lake/",
    "rpq scrub lake/ --state lake.scrub --stop-after 6h --json > scrub.json",
)
async def scrub(
    output: Output,
    urls: Urls,
    state: Annotated[
        str,
        typer.Option(metavar="FILE", help="A local file that remembers each object; made where it is missing."),
    ],
    every: Annotated[
        timedelta, typer.Option(metavar="AGE", parser=parse_age, help="How old a proof may become: 12h, 30d, 8w.")
    ] = "30d",  # type: ignore[assignment]  # the parser reads it
    budget: Annotated[
        int | None,
        typer.Option(metavar="RATE", parser=_parse_rate, help="Bytes to read in a second, at most: 50MB/s."),
    ] = None,
    heal: Annotated[
        bool,
        typer.Option("--heal", help="Rebuild objects that rotted in their place, from parity or --replica."),
    ] = False,
    replica: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --heal: a folder or prefix with copies under the same names."),
    ] = None,
    stop_after: Annotated[
        timedelta | None,
        typer.Option(metavar="AGE", parser=parse_age, help="Begin no further object after this time: 30m, 6h."),
    ] = None,
    max_files: MaxFilesAnywhere = None,
    scheduler: Scheduler = None,
    workers_timeout: WorkersTimeout = None,
) -> int:
    """Prove that objects are as they were, within a budget.

    Every object is read whole, and the digest of its bytes compared with that of its last proof. New objects, and those
    with another ETag, size or time of change, are checked instead, as `rpq check` does. Where the bytes changed and the
    version did not, the object has rotted. Objects that were proven longest ago come first; the same command, run by
    cron every day, proves everything again and again. Sidecars are proven like the files. Open uploads and unfinished
    files are listed.
    """
    options = ManyOptions(None, max_files, scheduler, workers_timeout)
    async with open_worker(options, output.reached) as worker:
        named = [worker.named(url) for url in urls]
        with output.progress("scrubbing") as meter:

            def show(report: rpq.ScrubReport) -> None:
                done = report.num_files - report.num_due
                meter.update(done / max(1, report.num_files), wording.counted(done, "object"))

            report = await rpq.scrub(
                named[0] if len(named) == 1 else named,
                state,
                every=every,
                budget=budget,
                heal=heal,
                replica=replica,
                stop_after=stop_after,
                max_files=worker.max_files,
                storage_options=output.reached.options,
                progress=show,
                run=None if scheduler is None else worker.run,
            )
    return _show(output, urls, state, report)


def _show(output: Output, urls: list[str], state: str, report: rpq.ScrubReport) -> int:
    for label, text in _lines(report):
        output.line(label, text)
    document: dict[str, Any] = asdict(report) | {"num_damaged": report.num_damaged}
    document |= {"uploads": [found_uploads.as_json(each) for each in report.uploads]}
    document |= {"oldest_proof": report.oldest_proof and report.oldest_proof.isoformat()}
    outcome = "healed" if report.damaged else "sound"
    if report.exit_code:
        outcome = "damaged" if report.num_damaged else "error"
    following = [output.reached.command(each) for each in _next(urls, state, report)]
    output.finish(outcome, following=following, url=" ".join(map(shown, urls)), state=state, **document)
    return report.exit_code


def _lines(report: rpq.ScrubReport) -> Iterator[tuple[str, str]]:
    new = f"; {report.num_new:,} of them new or changed" if report.num_new else ""
    yield "proven", f"{report.num_proven:,} of {wording.counted(report.num_files, 'object')}{new}"
    yield "read", wording.in_bytes(report.num_bytes)
    if report.num_due:
        yield "due", f"{wording.counted(report.num_due, 'object')}; the same command goes on with them"
    for each in report.damaged:
        yield each.outcome, f"{each.url}: {each.message}"
        if each.healed is not None:
            yield "healed", f"{each.url}, from its {each.healed}"
        elif each.not_healed is not None:
            yield "not healed", f"{each.url}: {each.not_healed}"
    yield from (("gone", url) for url in report.gone)
    now = datetime.now(UTC)
    for upload in report.uploads:
        age = "unknown" if upload.initiated is None else found_uploads.age(now - upload.initiated)
        yield "upload", f"{upload.url}: open, {age} old"
    yield from (("unfinished", path) for path in report.partial_files)
    if report.oldest_proof is not None:
        yield "oldest", f"every object was proven within the last {found_uploads.age(now - report.oldest_proof)}"


def _next(urls: list[str], state: str, report: rpq.ScrubReport) -> list[tuple[str, ...]]:
    """What to do about the first object that is damaged still, and about the first upload."""
    damaged = [each for each in report.damaged if each.healed is None and each.outcome != "error"]
    following = [command("check", each.url) for each in damaged[:1]]
    if any(each.outcome == "rot" and each.not_healed is None for each in damaged):
        following = [(*command("scrub", *urls), "--state", state, "--heal")]
    uploads = [("rpq", "uploads", "show", each.url, "--upload-id", each.upload_id) for each in report.uploads[:1]]
    return [*following, *uploads]
