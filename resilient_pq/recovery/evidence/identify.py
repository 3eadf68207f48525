"""The format of an object in which no Parquet file is found, as a sentence with advice. Sans-io."""

from __future__ import annotations

import bz2
import json
import lzma
import re
import zlib
from collections.abc import Callable, Generator
from contextlib import suppress

import cramjam

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import NotParquetError, Where
from resilient_pq.format.footer import ENCRYPTED_MAGIC, EXTENDED_MAGIC, MAGIC
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.text_mode import TextChange, TextDamage, detect_text_damage, undo_text_change

_HEAD_BYTES = 1024 * 1024
_TAIL_BYTES = 4096
#: Names of what may hold a Parquet file that can be found.
MAY_BE_PARQUET = ("parquet", "parquet-extended", "unknown", "zeros-around", "text-mode", "tar")
#: Places looked at between beginning and end, where these are zeros, and the bytes of each.
_PLACES, _PLACE_BYTES = 64, 4096
#: Bytes of a compressed beginning that are decompressed, and of what comes out.
_COMPRESSED_BYTES, _DECOMPRESSED_BYTES = 256 * 1024, 64
_TAR_MAGIC_AT, _TAR_BLOCK = 257, 512


@dataclass(frozen=True, slots=True)
class Identity:
    """The format of an object."""

    # In a word or two, the same for the same kind: "empty", "zeros", "gzip", "arrow-file", "text-mode" ...; "parquet"
    # where it begins or ends as a Parquet file, "unknown" where nothing is recognised
    name: str
    sentence: str  # For people
    hint: str | None = None  # What to do, often a command; None where there is nothing to advise


def identify(size: int) -> Generator[ByteRange, memoryview, Identity]:
    """The format of an object of `size` bytes."""
    if not size:
        return _EMPTY
    head = bytes((yield ByteRange(0, min(_HEAD_BYTES, size))))
    tail = bytes((yield ByteRange(max(0, size - _TAIL_BYTES), size)))
    if not any(head) and not any(tail):
        return (yield from _identify_zeros(size))
    return identity_of(head, tail, whole=len(head) == size)


def not_parquet(head: bytes) -> NotParquetError | None:
    """The error for a file that begins as another format does; None where it may be Parquet."""
    known = identity_of(head, b"")
    if known.name in MAY_BE_PARQUET or known.name in ("empty", "parquet-encrypted"):  # whose own errors say more
        return None
    return NotParquetError(known.sentence, where=Where(offset=0), hint=known.hint)


def identity_of(head: bytes, tail: bytes, *, whole: bool = False) -> Identity:
    """The format of an object by its first and last bytes, which are not all zeros."""
    if not head:
        return _EMPTY
    return (
        _identify_parquet(head, tail, whole)
        or _identify_by_magic(head, tail)
        or _identify_compressed(head)
        or _identify_text(head)
        or Identity("unknown", "nothing in its first and last bytes is known", "is it the right file?")
    )


_EMPTY = Identity(
    "empty", "it is empty: 0 bytes", "its writer stored nothing, or did not get to store it; look for another copy"
)


def _identify_zeros(size: int) -> Generator[ByteRange, memoryview, Identity]:
    step = max(_PLACE_BYTES, size // _PLACES)
    for start in range(0, size, step):
        if any(bytes((yield ByteRange(start, min(start + _PLACE_BYTES, size))))):
            sentence = "it begins and ends with zeros, and has data between"
            return Identity("zeros-around", sentence, "its beginning and its end were never written, or erased")
    return Identity(
        "zeros",
        f"it is nothing but zeros, as far as it was looked at: {size:,} bytes were set aside and never written",
        "the machine stopped before the data reached the disk, or a download did not go on; look for another copy",
    )


# -- Parquet, but not as it should be --------------------------------------------------------------------


def _identify_parquet(head: bytes, tail: bytes, whole: bool) -> Identity | None:
    ends = {tail[-4:], head[:4]}
    if ENCRYPTED_MAGIC in ends:
        sentence = "it is a Parquet file with an encrypted footer (PARE)"
        return Identity("parquet-encrypted", sentence, "it has to be read with its keys, as by pyarrow or Spark")
    if EXTENDED_MAGIC in ends:
        return Identity("parquet-extended", "it is a Parquet file with a footer of the form PARX")
    if MAGIC not in ends:
        return None
    damage = detect_text_damage(head) if head.startswith(MAGIC) else None
    if whole and (damage is None or not damage.certain) and (before := undo_text_change(head)) is not None:
        damage = TextDamage(before[0], certain=True)  # in a small file there may be too few bytes to count
    if damage is not None:
        certain = "" if damage.certain else ", as its bytes suggest"
        sentence, hint = _TEXT_CHANGES[damage.change]
        return Identity("text-mode", f"it is a Parquet file that was treated as text{certain}: {sentence}", hint)
    where = "begins" if head.startswith(MAGIC) else "ends"
    return Identity("parquet", f"it {where} as a Parquet file does")


_AGAIN = "transfer it once more, as binary; what was lost cannot be told from these bytes"
_TEXT_CHANGES = {
    TextChange.LF_TO_CRLF: (
        "each byte 0A became 0D 0A (LF to CR LF, a transfer in text mode)",
        "transfer it once more, as binary; or take the 0D before each 0A away: "
        "perl -pe 'BEGIN { binmode STDIN; binmode STDOUT } s/\\r\\n/\\n/' < FILE > COPY",
    ),
    TextChange.CRLF_TO_LF: ("each 0D 0A became 0A (CR LF to LF, a transfer in text mode)", _AGAIN),
    TextChange.UTF8_REPLACED: (
        "bytes that are no UTF-8 became EF BF BD (it was read as text and written again)",
        _AGAIN,
    ),
    TextChange.LATIN1_AS_UTF8: (
        "bytes above 127 became two bytes each (it was read as Latin-1 and written as UTF-8)",
        "transfer it once more, as binary; or turn it back: iconv -f UTF-8 -t LATIN1 FILE > COPY",
    ),
    TextChange.ASCII_REPLACED: ("bytes above 127 became question marks (it was made ASCII)", _AGAIN),
    TextChange.SEVEN_BITS: ("of each byte the eighth bit became 0 (a transfer of seven bits)", _AGAIN),
}


# -- other formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Format:
    """A format with a magic."""

    magic: bytes
    name: str
    what: str
    hint: str | None = None
    at: int = 0


_ARROW_HINT = "read it with pyarrow.feather, polars.read_ipc or the Arrow IPC reader"
_FORMATS = (
    _Format(b"ARROW1\0\0", "arrow-file", "an Arrow IPC file (Feather)", _ARROW_HINT),
    _Format(b"FEA1", "feather-v1", "a Feather file of version 1", _ARROW_HINT),
    _Format(b"ORC", "orc", "an ORC file", "read it with pyarrow.orc"),
    _Format(b"Obj\x01", "avro", "an Avro file"),
    _Format(b"SEQ\x06", "sequence-file", "a Hadoop SequenceFile"),
    _Format(b"RCF\x01", "rcfile", "an RCFile"),
    _Format(b"SQLite format 3\0", "sqlite", "an SQLite database"),
    _Format(b"DUCK", "duckdb", "a DuckDB database", "open it with duckdb", at=8),
    _Format(b"\x89HDF\r\n\x1a\n", "hdf5", "an HDF5 file", "read it with h5py or pandas.read_hdf"),
    _Format(b"\x93NUMPY", "numpy", "a NumPy array", "read it with numpy.load"),
    _Format(b"Salted__", "openssl", "encrypted by openssl enc"),
    _Format(b"age-encryption.org/", "age", "encrypted by age", "age --decrypt FILE > FILE.parquet"),
    _Format(b"-----BEGIN PGP", "pgp", "encrypted or signed by PGP", "gpg --decrypt FILE > FILE.parquet"),
    _Format(b"%PDF-", "pdf", "a PDF document"),
    _Format(b"7z\xbc\xaf\x27\x1c", "7z", "a 7z archive", "7z x FILE"),
    _Format(b"Rar!\x1a\x07", "rar", "a RAR archive", "unrar x FILE"),
    _Format(b"\x1f\x9d", "compress", "compressed by compress (.Z)", "uncompress < FILE > FILE.parquet"),
    _Format(b"\xff\x06\0\0sNaPpY", "snappy", "compressed by snappy (framed)"),
    _Format(b"version https://git-lfs.github.com/spec/", "git-lfs", "a Git LFS pointer, not the file itself",
            "git lfs pull"),
    _Format(b"/annex/objects/", "git-annex", "a git-annex pointer, not the file itself", "git annex get FILE"),
)  # fmt: skip


def _identify_by_magic(head: bytes, tail: bytes) -> Identity | None:
    for known in _FORMATS:
        if head.startswith(known.magic, known.at):
            return Identity(known.name, f"it is {known.what}", known.hint)
    if head[:4] == b"\xff\xff\xff\xff" and 0 < int.from_bytes(head[4:8], "little") < 1 << 28:
        return Identity("arrow-stream", "it is an Arrow IPC stream", _ARROW_HINT)
    if tail.endswith(b"ARROW1"):
        return Identity("arrow-file", "it ends as an Arrow IPC file (Feather) does", _ARROW_HINT)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and tail.endswith(b"."):
        return Identity("pickle", "it is a Python pickle", "load it with pickle only if its source is trusted")
    if head[:4] == b"PK\x03\x04":
        return _identify_zip(head)
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        inner = _contained(head[_TAR_BLOCK:])
        return Identity("tar", f"it is a tar archive{_naming(head[:100].rstrip(bytes(1)))}{inner}", "tar -xf FILE")
    return None


def _identify_zip(head: bytes) -> Identity:
    name_size = int.from_bytes(head[26:28], "little")
    name = head[30 : 30 + name_size]
    if name.startswith((b"xl/", b"[Content_Types].xml")):
        return Identity("excel", "it is an Excel workbook, or another document of Office")
    start = 30 + name_size + int.from_bytes(head[28:30], "little")
    data = head[start : start + _COMPRESSED_BYTES]
    if head[8:10] == b"\x08\0":
        data = _try_decompress(lambda given: zlib.decompressobj(-15).decompress(given, _DECOMPRESSED_BYTES), data)
    return Identity("zip", f"it is a ZIP archive{_naming(name)}{_contained(data)}", "unzip FILE")


def _naming(name: bytes) -> str:
    text = name[:200].decode("utf-8", "replace")
    return f" that begins with {text!r}" if text else ""


def _contained(data: bytes) -> str:
    return ", which is a Parquet file" if data.startswith(MAGIC) else ""


# -- compressed ------------------------------------------------------------------------------------------


def _zstd(data: bytes) -> bytes:
    out = bytearray(_DECOMPRESSED_BYTES)
    with suppress(cramjam.DecompressionError):  # there is more than there is room for; what is there counts
        cramjam.zstd.decompress_into(data, out)
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    """The first literals of a frame's first block (LZ4 Frame Format, LZ4 Block Format)."""
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    size = int.from_bytes(data[at : at + 4], "little")
    at += 4
    if size < 1 << 31:  # otherwise the block is stored as it is
        long = data[at] >> 4 == 15
        at += 1
        while long:
            long = data[at] == 0xFF
            at += 1
    return data[at : at + _DECOMPRESSED_BYTES]


_Decompress = Callable[[bytes], bytes]
_COMPRESSED: tuple[tuple[bytes, str, _Decompress, str], ...] = (
    (b"\x1f\x8b", "gzip", lambda data: zlib.decompressobj(31).decompress(data, _DECOMPRESSED_BYTES), "gzip -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd, "zstd -dc"),
    (b"BZh", "bzip2", lambda data: bz2.BZ2Decompressor().decompress(data, _DECOMPRESSED_BYTES), "bzip2 -dc"),
    (
        b"\xfd7zXZ\0",
        "xz",
        lambda data: lzma.LZMADecompressor(memlimit=1 << 28).decompress(data, _DECOMPRESSED_BYTES),
        "xz -dc",
    ),
    (b"\x04\x22\x4d\x18", "lz4", _lz4, "lz4 -dc"),
)


def _identify_compressed(head: bytes) -> Identity | None:
    for magic, name, decompress, command in _COMPRESSED:
        if head.startswith(magic):
            # bzip2 gives nothing before a block of 900 kB is whole.
            limit = len(head) if name == "bzip2" else _COMPRESSED_BYTES
            data = _try_decompress(decompress, head[:limit])
            if data.startswith(MAGIC):
                sentence = f"it is a Parquet file compressed as a whole by {name}"
                return Identity(f"{name}-of-parquet", sentence, f"{command} < FILE > FILE.parquet")
            return Identity(name, f"it is compressed by {name}", f"{command} < FILE, and look at what comes out")
    return None


def _try_decompress(decompress: _Decompress, data: bytes) -> bytes:
    """The decompressed bytes; none where they are damaged or need too much memory."""
    try:
        return decompress(data)
    except (zlib.error, OSError, EOFError, ValueError, LookupError, lzma.LZMAError):
        return b""


# -- text ------------------------------------------------------------------------------------------------

_S3_ERROR = re.compile(rb"<Error>.{0,200}?<Code>([A-Za-z0-9]{1,64})</Code>", re.DOTALL)
_TITLE = re.compile(rb"<title[^>]{0,200}>([^<]{0,200})", re.IGNORECASE)
#: How the command line is told of the separators of tables.
_TABLES = {b",": "csv", b"\t": "tsv", b";": "csv --delimiter ';'", b"|": "csv --delimiter '|'"}
_CONVERT = "convert it: rpq write FILE NEW.parquet --format"
_BASE64_MAGIC, _HEX_MAGIC = b"UEFSM", b"50415231"


def _identify_text(head: bytes) -> Identity | None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Identity("text", "this is a UTF-16 text file, not Parquet")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(_BASE64_MAGIC):
        return Identity("base64-of-parquet", "it is a Parquet file in Base64", "base64 -d < FILE > FILE.parquet")
    if text.startswith(_HEX_MAGIC):
        return Identity("hex-of-parquet", "it is a Parquet file in hexadecimal", "xxd -r -p FILE FILE.parquet")
    if not _is_text(text):
        return None
    start = text[:512].lower()
    if error := _S3_ERROR.search(text[:4096]):
        code = error[1].decode()
        return Identity("s3-error", f"this is an error message of S3 ({code}), not the object", "download it again")
    if b"<html" in start or b"<!doctype html" in start:
        title = _TITLE.search(text[:65536])
        named = "" if title is None else f": {' '.join(title[1].decode('utf-8', 'replace').split())!r}"
        hint = "a login page or a message of a server was stored in place of the file; download it again"
        return Identity("html", f"this is a web page{named}, not Parquet", hint)
    if start.startswith(b"<"):
        return Identity("xml", "this is an XML file, not Parquet")
    return _identify_json(text) or _identify_table(text) or Identity("text", "this is a text file, not Parquet")


def _is_text(head: bytes) -> bool:
    if not head or any(byte < 0x20 and byte not in b"\t\n\r\f\x1b" for byte in head[:65536]):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 4  # a character that the sample cuts in two
    return True


def _identify_json(text: bytes) -> Identity | None:
    if text[:1] not in (b"{", b"["):
        return None
    first = text.split(b"\n", 1)[0]
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return Identity("json", "this begins like a JSON file, and is not Parquet")
    if isinstance(value, dict) and b"\n" in text.rstrip():
        if {"metaData", "protocol", "commitInfo", "add"} & value.keys():
            return Identity("delta-log", "it is a log entry of a Delta table, not one of its data files")
        return Identity("ndjson", "this is a JSON Lines file, not Parquet", f"{_CONVERT} jsonl")
    return Identity("json", "this is a JSON file, not Parquet")


def _identify_table(text: bytes) -> Identity | None:
    lines = text[:65536].splitlines()[:20]
    if len(lines) > 2:
        lines = lines[:-1]  # the sample may cut it
    for separator, form in _TABLES.items():
        counts = {line.count(separator) for line in lines}
        if len(lines) > 1 and len(counts) == 1 and counts.pop():
            hint = f"{_CONVERT} {form}"
            sentence = f"this is a text file with columns separated by {separator.decode()!r}, not Parquet"
            return Identity("csv", sentence, hint)
    return None
