"""Damages Parquet files by their structure: the second generator of `scripts/torture.py`, which knows no recovery.

Files are cut, spliced, exchanged, moved and so on, at the borders that `structural_files.File` knows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from page_layout import FINAL, thrift_struct, thrift_value, varint
from structural_files import LONGER, OWN, SIBLING, Family, File


@dataclass(frozen=True)
class Hit:
    """What a damage made of a file; the rest is told of `structural_cases.Case`."""

    data: bytes = field(repr=False)
    words: str
    versions: tuple[str, ...] = (OWN,)
    exchanged: bool = False


Damage = Callable[[Family, random.Random], Hit]


def filler(size: int, rng: random.Random) -> bytes:
    """What may lie where something was destroyed."""
    return rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))


def written_over(data: bytes, place: range, rng: random.Random) -> bytes:
    return data[: place.start] + filler(len(place), rng) + data[place.stop :]


def flipped(data: bytes, at: int, rng: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def some_place(file: File, rng: random.Random, *, within: float = 0.6) -> tuple[int, str]:
    """A border of a piece, or an offset in one."""
    pieces = file.pieces()
    kind = rng.choice(sorted({piece.kind for piece in pieces}))
    piece = rng.choice([piece for piece in pieces if piece.kind == kind and piece.place])
    if rng.random() < within:
        return rng.choice(piece.place), f"in a {kind}"
    if rng.random() < 0.3:
        return piece.place.stop, f"behind a {kind}"
    return piece.place.start, f"before a {kind}"


def cut(family: Family, rng: random.Random) -> Hit:
    """The end is missing."""
    own = family.own
    match rng.randrange(8):
        case 0:
            end, words = len(own.data) - rng.randrange(1, 12), "in the last bytes"
        case 1:
            end, words = rng.randrange(1, len(own.data)), "anywhere"
        case 2:
            end, words = rng.randrange(1, 1 + len(own.data) // 512) * 512, "at a sector"
        case _:
            end, words = some_place(own, rng)
    return Hit(own.data[:end], f"cut at {end}, {words}")


def spliced(family: Family, rng: random.Random, one: str, other: str) -> Hit:
    """The beginning of a file, and the end of another."""
    first, second = family.files[one], family.files[other]
    if rng.random() < 0.5:
        first, second = second, first
    ones, others = first.borders(), second.borders()
    at = rng.randrange(1, min(len(ones), len(others)))
    if rng.random() < 0.35:
        at = rng.randrange(min(len(ones), len(others)) * 2 // 3, min(len(ones), len(others)))
    end, start = ones[at], others[at]
    match rng.randrange(4):
        case 0:
            start = end
        case 1:
            start = rng.choice(others)
        case 2 if rng.random() < 0.5:
            end = start = rng.choice(range(512, min(len(first.data), len(second.data)), 512))
    words = f"{first.version}[:{end}] + {second.version}[{start}:]"
    return Hit(first.data[:end] + second.data[start:], words, (one, other), start == end)


def older_of(family: Family) -> str:
    return next(version for version in family.files if version.startswith("older"))


def stale_tail(family: Family, rng: random.Random) -> Hit:
    """An older longer file was overwritten, and perhaps not to the end."""
    own, longer = family.own, family.files[LONGER]
    end = rng.choice((len(own.data), len(own.data), some_place(own, rng)[0]))
    words = f"own[:{end}] over an older longer file"
    return Hit(own.data[:end] + longer.data[end:], words, (OWN, LONGER), True)


def stale_blocks(family: Family, rng: random.Random) -> Hit:
    """Blocks of another file lie in the place of some."""
    own, version = family.own, rng.choice((SIBLING, older_of(family), LONGER))
    stale, size = family.files[version].data, rng.choice((512, 512, 4096))
    data, words = bytearray(own.data), []
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(0, max(1, len(own.data) // size)) * size
        end = min(start + size * rng.randrange(1, 4), len(own.data), len(stale))
        data[start:end] = stale[start:end]
        words.append(f"{start} to {end}")
    return Hit(bytes(data), f"blocks of {version}: {', '.join(words)}", (OWN, version), True)


def units_of(file: File, unit: str, rng: random.Random) -> list[range]:
    """The file cut into pages, records, chunks, sectors, or at random."""
    match unit:
        case "pages":
            return file.page_places()
        case "bodies":
            return [page.body for page in file.pages() if page.body]
        case "records":
            return [record.place for record in file.records()]
        case "chunks":
            return [chunk.place for chunk in file.chunks()]
        case "row groups":
            starts = [min(chunk.place.start for chunk in group.chunks) for group in file.layout.row_groups]
            return [range(start, end) for start, end in pairwise([*starts, file.layout.footer.start])]
        case "random parts":
            borders = sorted(rng.sample(range(1, len(file.data)), min(40, len(file.data) // 8)))
            return [range(start, end) for start, end in pairwise(borders)]
        case _:
            size = int(unit)
            return [range(at, min(at + size, len(file.data))) for at in range(0, len(file.data), size)]


def a_unit(file: File, rng: random.Random) -> tuple[str, list[range]]:
    units = ["pages", "pages", "bodies", "chunks", "row groups", "512", "4096", "random parts"]
    if file.ours:
        units += ["records", "records"]
    while True:
        unit = rng.choice(units)
        places = units_of(file, unit, rng)
        if len(places) > 1:
            return unit, places


def pages_exchanged(family: Family, rng: random.Random) -> Hit:
    """Pages in the place of others: of the same size if there are any, so that all else stays where it is."""
    own, version = family.own, rng.choice((OWN, OWN, SIBLING, older_of(family), older_of(family)))
    other = family.files[version]
    whole = rng.random() < 0.7
    mine, theirs = (units_of(f, "pages" if whole else "bodies", rng) for f in (own, other))
    data, words = bytearray(own.data), []
    for _ in range(rng.choice((1, 1, 2, 4))):
        one = rng.choice(mine)
        alike = [
            p for p in theirs if len(p) == len(one) and other.data[p.start : p.stop] != own.data[one.start : one.stop]
        ]
        if not alike:
            continue
        if version != OWN and rng.random() < 0.6:  # the one that is its own older self
            alike = sorted(alike, key=lambda place: abs(place.start - one.start))[:1]
        two = rng.choice(alike)
        data[one.start : one.stop] = other.data[two.start : two.stop]
        if version == OWN and rng.random() < 0.8:
            data[two.start : two.stop] = own.data[one.start : one.stop]
        words.append(f"{one.start} and {two.start} of {version}, {len(one)} bytes")
    if not words:
        one, two = rng.choice(mine), rng.choice(theirs)
        data[one.start : one.stop] = other.data[two.start : two.stop]
        words.append(f"{one.start} by {two.start} of {version}, of other sizes")
    same_size = len(data) == len(own.data)
    return Hit(bytes(data), ("pages: " if whole else "bodies: ") + "; ".join(words), exchanged=same_size)


def blended(family: Family, rng: random.Random) -> Hit:
    """All pages of a chunk or of a row group are those of an older version, where they have the same size."""
    own, other = family.own, family.files[rng.choice((older_of(family), SIBLING))]
    data, replaced = bytearray(own.data), 0
    ordinal = rng.randrange(len(own.layout.row_groups))
    pairs = list(zip(own.layout.row_groups[ordinal].chunks, other.layout.row_groups[ordinal].chunks, strict=True))
    pairs = pairs if rng.random() < 0.5 else [rng.choice(pairs)]
    for one, two in pairs:
        for mine, theirs in zip(one.pages, two.pages, strict=False):
            places = [range(page.header.start, page.body.stop) for page in (mine, theirs)]
            if len(places[0]) == len(places[1]):
                data[places[0].start : places[0].stop] = other.data[places[1].start : places[1].stop]
                replaced += 1
    return Hit(bytes(data), f"{replaced} pages of row group {ordinal} are of {other.version}", exchanged=True)


def deleted(family: Family, rng: random.Random) -> Hit:
    """Blocks are missing."""
    unit, places = a_unit(family.own, rng)
    gone = sorted(rng.sample(range(len(places)), min(len(places) - 1, rng.choice((1, 1, 2, 3)))), reverse=True)
    data, words = family.own.data, []
    for i in gone:
        last = min(len(places) - 1, i + rng.choice((0, 0, 1, 3)))
        data = data[: places[i].start] + data[max(places[i].start, places[last].stop) :]
        words.append(f"{places[i].start} to {places[last].stop}")
    return Hit(data, f"{unit} deleted: {', '.join(words)}")


def repeated(family: Family, rng: random.Random) -> Hit:
    """A block comes twice."""
    unit, places = a_unit(family.own, rng)
    place = rng.choice(places)
    at = rng.choice((place.stop, rng.choice(places).start))
    data = family.own.data
    piece = data[place.start : place.stop]
    return Hit(data[:at] + piece + data[at:], f"{unit}: {place.start} to {place.stop} again at {at}")


def moved(family: Family, rng: random.Random) -> Hit:
    """A block lies elsewhere."""
    unit, places = a_unit(family.own, rng)
    one, two = sorted(rng.sample(range(len(places)), 2))
    first, second, data = places[one], places[two], family.own.data
    pieces = [data[: first.start], data[first.start : first.stop], data[first.stop : second.start]]
    pieces += [data[second.start : second.stop], data[second.stop :]]
    if rng.random() < 0.5:
        order, words = (0, 3, 2, 1, 4), "exchanged with"
        in_place = len(first) == len(second)
    else:
        order, words = (0, 2, 3, 1, 4), "moved behind"
        in_place = any(first.start in chunk.place and second.start in chunk.place for chunk in family.own.chunks())
    what = f"{unit}: {first.start} to {first.stop} {words} {second.start} to {second.stop}"
    return Hit(b"".join(pieces[i] for i in order), what, exchanged=in_place)


def zeroed(family: Family, rng: random.Random) -> Hit:
    """Blocks are zero, or garbage."""
    unit, places = a_unit(family.own, rng)
    data, words = family.own.data, []
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.choice(places)
        data = written_over(data, place, rng)
        words.append(f"{place.start} to {place.stop}")
    return Hit(data, f"{unit} written over: {', '.join(words)}")


def head_missing(family: Family, rng: random.Random) -> Hit:
    """Bytes are missing at the head, or are too much."""
    data = family.own.data
    if rng.random() < 0.25:
        size = rng.choice((1, 4, 100, 512, 4096))
        return Hit(filler(size, rng) + data, f"{size} bytes before the head")
    first = [place for place in family.own.borders() if 0 < place < len(data) // 2]
    size = rng.choice((1, 2, 3, 4, 5, 100, 512, 4096, rng.choice(first), rng.choice(first)))
    return Hit(data[min(size, len(data) // 2) :], f"{size} bytes missing at the head")


def as_text(family: Family, rng: random.Random) -> Hit:
    """A transfer in text mode."""
    data = family.own.data
    match rng.randrange(4):
        case 0 | 1:
            return Hit(data.replace(b"\n", b"\r\n"), "LF to CR LF")
        case 2:
            return Hit(data.replace(b"\r\n", b"\n"), "CR LF to LF")
        case _:
            end, words = some_place(family.own, rng)
            return Hit(data[:end].replace(b"\n", b"\r\n"), f"LF to CR LF, cut at {end} before that, {words}")


def footer_bit(family: Family, rng: random.Random) -> Hit:
    """A bit of a footer is turned, or a few bytes of it."""
    places = [record.place for record in family.own.records(1, 3, 4)] or [family.own.layout.footer]
    data, words = family.own.data, []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.choice(places[-1] if rng.random() < 0.7 else rng.choice(places))
        data = flipped(data, at, rng)
        words.append(str(at))
    return Hit(data, f"bits at {', '.join(words)} of footers")


def row_group_entries(file: File) -> list[range]:
    """Where the footer speaks of each row group."""
    data, at, number = file.layout.data, file.layout.footer.start, 0
    while head := data[at]:
        at += 1
        number += head >> 4
        if number == 4:
            size, at = data[at] >> 4, at + 1
            if size == 15:
                size, at = varint(data, at)
            entries = []
            for _ in range(size):
                _, end = thrift_struct(data, at)
                entries.append(range(at, end))
                at = end
            return entries
        if head & 15 not in (1, 2):
            _, at = thrift_value(data, at, head & 15)
    raise ValueError("the footer has no row groups")


def footer_entries(family: Family, rng: random.Random) -> Hit:
    """Entries of row groups in the footer are damaged, and their data zeroed."""
    own = family.own
    entries = row_group_entries(own)
    if own.ours:  # the final footer alone
        entries = entries or [own.layout.footer]
    first = rng.randrange(len(entries))
    hit = range(first, min(len(entries), first + rng.choice((1, 1, 2))))
    data = own.data
    for i in hit:
        place = entries[i]
        at = rng.randrange(place.start, place.stop)
        data = written_over(data, range(at, min(place.stop, at + rng.choice((1, 4, len(place))))), rng)
        if rng.random() < 0.7:
            for chunk in own.layout.row_groups[i].chunks:
                data = data[: chunk.place.start] + bytes(len(chunk.place)) + data[chunk.place.stop :]
    if own.ours:
        header = own.records(FINAL)[0].place
        data = written_over(data, range(header.start, header.start + 96), rng)
    return Hit(data, f"entries {hit.start} to {hit.stop} of the footer, and their data")


def no_footer(family: Family, rng: random.Random) -> Hit:
    """Everything that tells the schema is gone."""
    own, data = family.own, family.own.data
    places = [record.place for record in own.records(1, 3, 4)] or [own.layout.footer]
    if rng.random() < 0.3:
        places = [places[0], places[-1]]
    for place in places:
        data = data[: place.start] + bytes(len(place)) + data[place.stop :]
    words = "all footers" if len(places) != 2 else "first and last footer"
    if rng.random() < 0.3:
        data = data[: own.layout.footer.start]
    return Hit(data, f"{words} zeroed")


def appended(family: Family, rng: random.Random) -> Hit:
    """Something follows the end."""
    own = family.own
    match rng.randrange(4):
        case 0:
            return Hit(own.data + filler(rng.choice((1, 8, 500, 4096)), rng), "garbage behind the end")
        case 1:
            version = rng.choice((OWN, SIBLING, older_of(family)))
            return Hit(own.data + family.files[version].data, f"{version} behind the end", (OWN, version))
        case 2:
            end, words = some_place(own, rng)
            return Hit(own.data[:end] + own.data, f"own[:{end}] + own, {words}")
        case _:
            end, words = some_place(own, rng)
            return Hit(own.data[:end] + bytes(len(own.data) - end), f"zeroed from {end}, {words}")


def inner_first(family: Family, rng: random.Random) -> Hit:
    """A file inside of a file, whose own beginning or end is damaged."""
    own, data = family.own, family.own.data
    words = []
    if rng.random() < 0.6:
        size = rng.choice((1, 1, 4, 12, 96))
        data = rng.choice((data[size:], written_over(data, range(size), rng)))
        words.append(f"{size} bytes of the head")
    if rng.random() < 0.5:
        end = len(data) - rng.choice((1, 8, len(own.layout.footer) // 2, len(own.layout.footer) + 50))
        data = data[:end]
        words.append(f"cut at {end}")
    if not words:
        anchor = own.records(1)[0].place
        data = written_over(data, range(anchor.start, anchor.start + rng.choice((9, 96, len(anchor)))), rng)
        words.append("the anchor")
    return Hit(data, " and ".join(words))


def nothing_more(family: Family, rng: random.Random) -> Hit:
    """Only what was destroyed before."""
    return Hit(family.own.data, "as it is")


#: Every class of damage, with its weight.
DAMAGES: dict[str, tuple[Damage, int]] = {
    "cut": (cut, 5),
    "splice of siblings": (lambda family, rng: spliced(family, rng, OWN, SIBLING), 4),
    "splice of versions": (lambda family, rng: spliced(family, rng, OWN, older_of(family)), 4),
    "stale tail": (stale_tail, 3),
    "stale blocks": (stale_blocks, 4),
    "pages exchanged": (pages_exchanged, 6),
    "pages of a version": (blended, 3),
    "deleted": (deleted, 6),
    "repeated": (repeated, 4),
    "moved": (moved, 5),
    "written over": (zeroed, 4),
    "head": (head_missing, 3),
    "text": (as_text, 2),
    "footer bit": (footer_bit, 3),
    "footer entries": (footer_entries, 3),
    "no footer": (no_footer, 3),
    "appended": (appended, 3),
    "inner file": (inner_first, 0),
    "records": (nothing_more, 3),
}
