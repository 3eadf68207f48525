"""Reports and summaries as lines of a verb's output."""

from __future__ import annotations

from collections.abc import Sequence

from resilient_pq.bulk.run_summary import RunSummary
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.output.wording import counted, in_bytes
from resilient_pq.errors import Where
from resilient_pq.recovery.ledger.account import MEANINGS, lost_rows, nulled_words, rows_lost_words
from resilient_pq.recovery.ledger.grid import UNHARMED
from resilient_pq.recovery.ledger.ledger_model import Confidence, Ledger, PageState
from resilient_pq.recovery.report import Finding, Kept, LostRegion, Outcome, Report, rows_lost, rows_words
from resilient_pq.shell_commands import in_shell

#: Findings and lost regions that are listed; --json gives all.
MAX_LISTED = 20


def show_check(output: Output, report: Report) -> None:
    """Print the report of a check, and the commands to run next."""
    _show_list(output, [(str(finding.damage), _finding_words(finding, report.url)) for finding in report.findings])
    what = f"{rows_words(report.num_rows)} in {counted(report.num_row_groups, 'row group')}"
    if report.outcome is Outcome.NOTHING:
        _show_nothing(output, report)
    else:
        output.line(*_outcome_words(report, what))
    for note in report.notes:
        output.note(note, label="hint")
    _show_unverified(output, report.pages_verified or 0, report.pages_decoded or 0)
    if report.blocks_damaged is not None:
        output.line("repairable", f"{report.blocks_repairable:,} of {counted(report.blocks_damaged, 'damaged block')}")
    if report.parity_blocks and report.outcome is Outcome.SOUND:
        output.line("parity", f"{counted(report.parity_blocks, 'block')} computed again: all as they should be")
    elif report.parity_blocks == 0:
        output.line("parity", "none: `rpq protect` makes a sidecar")
    _end(output, report)


def _end(output: Output, report: Report) -> None:
    """Print what else could be done, and the JSON document."""
    if report.other_policy is not None:
        output.line("more rows", f"--on-damage {report.other_policy.on_damage} keeps {report.other_policy}")
    output.next(*report.next)
    output.document(report.to_json())


def _outcome_words(report: Report, what: str) -> tuple[str, str]:
    """What there is of a file, and how whole it is."""
    match report.outcome:
        case Outcome.SOUND if report.pages_decoded:
            return "decoded", what
        case Outcome.SOUND:
            return "sound", f"{what}; nothing wrong in {in_bytes(report.size)}{_verified_words(report)}"
        case Outcome.CIPHERTEXT_WHOLE:
            return "whole", f"{report.outcome}: {what}; every byte is as it was written, in {in_bytes(report.size)}"
        case _ if report.num_rows is None:
            return report.outcome, f"{what}, in {in_bytes(report.size)}"
        case _:
            return "sound", f"{what} can be read"


def _verified_words(report: Report) -> str:
    return f"; {counted(report.pages_verified, 'page')} verified" if report.pages_verified else ""


def _show_unverified(output: Output, verified: int, decoded: int, files: int = 0) -> None:
    """Print the number of pages without checksums."""
    if decoded:
        where = f" in {counted(files, 'file')}" if files else ""
        those = f"{decoded:,} of {counted(verified + decoded, 'page')}{where} were decoded"
        output.line("no checksum", f"{those}, a changed value would not be seen")


def show_recovery(output: Output, report: Report) -> None:
    """Print the report of a recovery, and the commands to run next."""
    kept = report.kept
    for finding in [finding for finding in report.findings if finding.where.row_group is None][:MAX_LISTED]:
        output.line("found", _finding_words(finding, report.url))
    if kept is not None and kept.output is not None:
        rows = f"{_kept_words(kept)} in {counted(report.num_row_groups, 'row group')}"
        output.line("kept", f"{rows}; {in_bytes(kept.num_bytes)} copied as they were")
        if kept.num_bytes_unread:
            unread = f"{in_bytes(kept.num_bytes_unread)} of them were copied by the store and not compared"
            output.line("unread", f"{unread}: {in_shell('check', kept.output)}")
    elif kept is not None and kept.outputs:
        output.line("kept", f"{rows_words(kept.num_rows)}, each column by itself")
    else:
        _show_nothing(output, report)
    if kept is not None:
        if kept.ledger is None:
            _show_lost(output, kept.rows_lost, kept.lost)
        else:
            _show_ledger(output, kept.ledger)
        if kept.output is not None:
            output.line("written", kept.output)
        for url in kept.outputs.values():
            output.line("written", url)
    for note in report.notes:
        output.note(note)
    _end(output, report)


def show_seal(output: Output, report: Report) -> None:
    """Print the report of a seal, and the commands to run next."""
    what = f"{rows_words(report.num_rows)} in {counted(report.num_row_groups, 'row group')}"
    output.line(report.outcome, f"{what}; every page was decoded, and has a checksum")
    if report.kept is not None and report.kept.output is not None:
        output.line("written", report.kept.output)
    for note in report.notes:
        output.note(note)
    _end(output, report)


def show_run_summary(output: Output, summary: RunSummary) -> None:
    """Print the number of files of each outcome, and the worst files."""
    worst = summary.worst[:MAX_LISTED]
    if worst:
        rows = [
            (
                entry.outcome,
                "" if entry.num_rows is None else f"{entry.num_rows:,}",
                "" if entry.rows_lost is None else f"{entry.rows_lost:,}",
                f"{entry.url}: {entry.message}" if entry.message else entry.url,
            )
            for entry in worst
        ]
        output.table(("outcome", "rows", "lost", "file, and what is wrong with it"), rows, left=1, last_left=True)
        others = sum(summary.outcomes.values()) - sum(summary.outcomes.get(each, 0) for each in ("sound", "read"))
        if others > len(worst):
            output.line("", f"and {others - len(worst):,} more, which --json lists")
        output.block("")
    worst_first = sorted(summary.outcomes.items(), key=lambda item: _BADNESS.index(item[0]))
    outcomes = ", ".join(f"{count:,} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in worst_first)
    output.line("files", f"{counted(summary.num_files, 'file')}, {in_bytes(summary.size)}: {outcomes}")
    if summary.num_resumed:
        output.line("resumed", f"{counted(summary.num_resumed, 'file')} were done in an earlier run")
    if summary.verb == "recover":
        lost = counted(summary.rows_lost, "row")
        if summary.num_uncounted:
            lost += f", plus an unknown number in {counted(summary.num_uncounted, 'file')}"
        output.line("rows", f"{summary.num_rows:,} are left")
        output.line("lost", lost if summary.rows_lost or summary.num_uncounted else "nothing")
    else:
        output.line("rows", f"{summary.num_rows:,} can be read")
        _show_unverified(output, summary.pages_verified, summary.pages_decoded, summary.num_not_verified)


#: Words for outcomes that are no adjectives.
_OUTCOMES = {"nothing": "unrecoverable", "error": "with an error", "read": "read"}
#: The worst first.
_BADNESS = ("error", "nothing", "damaged", "partial", "incomplete", "recovered", "sound", "read")


def show_conversion(output: Output, report: Report) -> None:
    """Print the report of a conversion, and the commands to run next."""
    kept = report.kept
    for finding in [finding for finding in report.findings if not finding.costs_rows][:MAX_LISTED]:
        output.line("found", _finding_words(finding, report.url))
    if kept is None or kept.output is None:
        output.line("nothing", f"no row can be converted of {in_bytes(report.size)}")
    else:
        output.line("kept", f"{rows_words(kept.num_rows)} in {counted(report.num_row_groups, 'row group')}")
    if kept is not None:
        _show_lost(output, kept.rows_lost, kept.lost)
        if kept.output is not None:
            output.line("written", kept.output)
    _end(output, report)


def _kept_words(kept: Kept) -> str:
    if kept.num_rows is None or kept.ledger is None or not kept.ledger.rows_lost:
        return rows_words(kept.num_rows)
    return f"{kept.num_rows:,} of {counted(kept.num_rows + kept.ledger.rows_lost, 'row')}"


def _show_ledger(output: Output, ledger: Ledger) -> None:
    """Print a ledger: the numbers of rows, the map if any page is damaged, and the lost rows."""
    output.line("lost", rows_lost_words(ledger))
    if ledger.rows_nulled:
        output.line("nulled", f"{counted(ledger.rows_nulled, 'row')} {nulled_words(ledger)}")
    if unplaced := sum(fate.num_rows or 0 for fate in ledger.rows if fate.confidence is Confidence.UNPLACED):
        output.line("unplaced", f"{counted(unplaced, 'row')}: nothing proves that these values belong there")
    for state in (PageState.MENDED, PageState.REBUILT, PageState.REPAIRED):
        pages = sum(page.state is state for page in ledger.pages())
        if pages:
            output.line(state, f"{counted(pages, 'page')}: {MEANINGS[state]}")
    if any(page.state not in UNHARMED for page in ledger.pages()):
        output.block("")
        output.map(ledger)
        output.block("")
    lost = lost_rows(ledger)
    if lost:
        rows = [(run.rows, run.row_group, run.count, f"{run.fate}: {run.reason}") for run in lost[:MAX_LISTED]]
        output.table(("rows", "row group", "count", "what became of them"), rows, left=1, last_left=True)
        if len(lost) > MAX_LISTED:
            output.line("", f"and {len(lost) - MAX_LISTED:,} more, which --json lists")
        output.block("")


def _show_nothing(output: Output, report: Report) -> None:
    output.line("nothing", f"no row can be recovered from {in_bytes(report.size)}")
    if report.schema is not None:
        output.line("schema", "the file has these columns:")
        output.block(report.schema)


def _show_lost(output: Output, rows: int | None, lost: Sequence[LostRegion]) -> None:
    if len(lost) < 2:
        output.line("lost", _lost_words(lost[0]) if lost else "nothing")
        return
    size = sum(region.end - region.start for region in lost)
    how_many = "an unknown number of rows" if rows is None else counted(rows, "row")
    output.line("lost", f"{how_many} in {in_bytes(size)}:")
    _show_list(output, [("", _lost_words(region)) for region in lost])


def show_lost_rows(output: Output, lost: Sequence[LostRegion]) -> None:
    """Print on stderr which rows are missing from those on stdout."""
    for region in lost[:MAX_LISTED]:
        words = _cost_words(region.num_rows, region.num_nulled)
        output.note(f"{words}: {region.reason} (at {region.where})", label="lost")
    if len(lost) > MAX_LISTED:
        words = _cost_words(rows_lost(lost), sum(region.num_nulled for region in lost))
        output.note(f"in {len(lost):,} regions, which --json lists: {words}", label="lost")


def _cost_words(num_rows: int | None, num_nulled: int) -> str:
    words = [rows_words(num_rows)] if num_rows != 0 or not num_nulled else []
    if num_nulled:
        words.append(f"{counted(num_nulled, 'value')}, null instead")
    return "; ".join(words)


def _lost_words(region: LostRegion) -> str:
    rows = rows_words(region.num_rows)
    place = _without_key(region.where)
    where = f"{place}, bytes" if place else "bytes"
    nulled = f", {counted(region.num_nulled, 'value')}" if region.num_nulled else ""
    return f"{where} {region.start:,} to {region.end:,}, {rows}{nulled}: {region.reason}"


def _finding_words(finding: Finding, url: str) -> str:
    """The message of a finding and its place, with the URL only where it is another one than `url`."""
    place = _without_key(finding.where) if finding.where.key == url else str(finding.where)
    if finding.where.offset is None and finding.start is not None and finding.end is not None:
        stretch = f"bytes {finding.start:,} to {finding.end:,}"
        place = f"{place}, {stretch}" if place else stretch
    words = f"{finding.message} ({place})" if place else finding.message
    return words if finding.costs_rows else f"{words}; no rows are lost by it"


def _without_key(where: Where) -> str:
    return str(Where(None, where.row_group, where.column, where.page, where.offset))


def _show_list(output: Output, lines: Sequence[tuple[str, str]]) -> None:
    for label, text in lines[:MAX_LISTED]:
        output.line(label, text)
    if len(lines) > MAX_LISTED:
        output.line("", f"and {len(lines) - MAX_LISTED:,} more, which --json lists")
