"""A damaged encrypted file in the clear: by its footer, or by its records where that does not do. An async shell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.encryption.decrypted_store import DecryptedStore
from resilient_pq.encryption.keys import DecryptionKeys, KeysArgument
from resilient_pq.errors import (
    AuthenticationError,
    FormatError,
    KeyMissingError,
    NothingToRecoverError,
    TornFileError,
    UnsupportedError,
    Where,
    WrongKeyError,
)
from resilient_pq.off_event_loop import PIECE_BYTES, off_loop
from resilient_pq.recovery.damaged_object import TAIL_BYTES, DamagedObject
from resilient_pq.recovery.encrypted.scanned_view import scanned_view
from resilient_pq.recovery.encrypted.sealed_pages import LostPage, find_pages, put_back_exchanged
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import outermost_file, scan_object
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report


async def decrypted(
    source: DamagedObject, keys: KeysArgument, aad_prefix: bytes | None, *, by_records: bool = False
) -> DamagedObject:
    """An encrypted object in the clear, at the same offsets; what is damaged is shown so that no checksum holds."""
    found = DecryptionKeys.of(keys, (source.store, source.key))
    again = partial(decrypted, keys=keys, aad_prefix=aad_prefix)
    open_view = partial(
        DecryptedStore.open, keys=found, aad_prefix=aad_prefix, tail_bytes=TAIL_BYTES, shows_damage=True
    )
    failure: FormatError | WrongKeyError | None = None
    if not by_records and source.file_id is None:
        try:
            return await source.decrypted(await open_view(source.store, source.key), again)
        except (FormatError, WrongKeyError) as error:
            failure = error  # which is the footer's alone where its records open
    source = await _put_back(source)
    if (scanned := await scanned_view(source, found, aad_prefix)) is not None:
        return await source.decrypted(scanned, again)
    if failure is not None:
        raise failure
    view = await open_view(source.store, source.key)
    await _examine_chunks(source, view)
    return await source.decrypted(view, again)


async def opened(source: DamagedObject, options: RecoverOptions) -> DamagedObject:
    """An encrypted object in the clear, for its recovery."""
    assert options.keys is not None
    if options.on_damage == OnDamage.COLUMNS:
        raise UnsupportedError("columns of an encrypted file are not written one by one", hint="use on_damage='null'")
    try:
        found = await decrypted(source, options.keys, options.aad_prefix)
    except AuthenticationError:
        raise
    except FormatError as error:
        raise nothing_to_open(source, "recover", error) from error
    if found.opened.missing_keys:
        raise KeyMissingError(keys_missing(found), where=Where(key=source.url), hint="pass them, too")
    return found


def keys_missing(source: DamagedObject) -> str:
    """Which keys were not given of a file in the clear."""
    return f"there are no keys for the columns {', '.join(source.opened.missing_keys)}"


async def _put_back(source: DamagedObject) -> DamagedObject:
    """The object with its parts at the offsets at which they were written, as far as its records tell."""
    headers = await source.drive(scan_object(source.info.size))
    file_id = source.file_id or outermost_file(headers)
    if file_id is None or all(at == header.offset for at, header in headers if header.file_id == file_id):
        return source
    view = await source.drive(place(source.info.size, headers, file_id))
    return source if view.is_in_place and view.size == source.info.size else source.through(view)


async def _examine_chunks(source: DamagedObject, view: DecryptedStore) -> None:
    """Look closely at the pages of a file without records: which are whole, and which lie in the places of others."""
    lost: list[LostPage] = []
    for chunk in view.chunks:
        place = ByteRange(chunk.start, min(chunk.end, source.info.size))
        lost += await off_loop(place.size // PIECE_BYTES, find_pages, chunk, await source.read(place), None)
    await off_loop(len(lost) ** 2, put_back_exchanged, lost)


async def read_by_records(known: Reconstruction) -> Reconstruction | None:
    """What is known of a damaged encrypted file by its records; None in the clear, or where they tell nothing."""
    source = known.source
    if source.decrypt is None:
        return None
    try:
        again = await source.decrypt(source.stored, by_records=True)
    except FormatError:
        return None
    found = await reconstruct(again, known.given, known.siblings)
    if again.stored.is_view:
        message = "parts of it lie elsewhere than they were written: they are put back"
        found = found.with_findings(Finding(Damage.CORRUPT, message, costs_rows=False))
    return found


async def with_damaged_indexes(known: Reconstruction) -> Reconstruction:
    """What is known of an encrypted file, with its page indexes and bloom filters that do not open."""
    message = "a page index or a bloom filter is not what was sealed for its place"
    places = await known.source.opened.damaged_indexes()
    found = known.with_findings(*(Finding(Damage.CORRUPT, message, where, costs_rows=False) for where in places))
    return replace(found, keys_damaged=known.keys_damaged or bool(places))


def nothing_to_open(source: DamagedObject, verb: str, error: FormatError) -> NothingToRecoverError:
    """The error, with its report, for an encrypted file of which no footer is whole."""
    size, reason = source.info.size, f"without a whole footer nothing of it can be decrypted: {error.message}"
    damage = Damage.TORN if isinstance(error, TornFileError) else Damage.CORRUPT
    finding = Finding(damage, reason, error.where, 0, size)
    kept = Kept(None, 0, 0, None, (LostRegion(0, size, None, damage, reason),)) if verb == "recover" else None
    report = Report(verb, source.url, Outcome.NOTHING, 0, size=size, findings=(finding,), kept=kept)
    return NothingToRecoverError(f"nothing to recover: {reason}", report=report, where=Where(key=source.url))
