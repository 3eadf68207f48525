"""The Dremel paper's documents and the address book of "Dremel made simple with Parquet", through files.

What stands in the pages must be what was published, level for level and value for value, and what comes back
must be the records.
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.physical_values import ByteArrays, LeafColumn
from resilient_pq.io.memory_store import MemoryStore

Entries = list[tuple[Any, int, int]]


@dataclass(frozen=True)
class Example:
    """A schema, records, and for each leaf its entries as published: value, repetition and definition level."""

    schema: str
    records: list[dict[str, Any]]
    complete: list[dict[str, Any]]  # The records as they are read: nothing left out
    columns: dict[str, Entries]


DOCUMENT = Example(
    """message Document {
      required int64 DocId;
      optional group Links {
        repeated int64 Backward;
        repeated int64 Forward;
      }
      repeated group Name {
        repeated group Language {
          required binary Code (STRING);
          optional binary Country (STRING);
        }
        optional binary Url (STRING);
      }
    }""",
    [
        {
            "DocId": 10,
            "Links": {"Forward": [20, 40, 60]},
            "Name": [
                {"Language": [{"Code": "en-us", "Country": "us"}, {"Code": "en"}], "Url": "http://A"},
                {"Url": "http://B"},
                {"Language": [{"Code": "en-gb", "Country": "gb"}]},
            ],
        },
        {"DocId": 20, "Links": {"Backward": [10, 30], "Forward": [80]}, "Name": [{"Url": "http://C"}]},
    ],
    [
        {
            "DocId": 10,
            "Links": {"Backward": [], "Forward": [20, 40, 60]},
            "Name": [
                {
                    "Language": [{"Code": "en-us", "Country": "us"}, {"Code": "en", "Country": None}],
                    "Url": "http://A",
                },
                {"Language": [], "Url": "http://B"},
                {"Language": [{"Code": "en-gb", "Country": "gb"}], "Url": None},
            ],
        },
        {
            "DocId": 20,
            "Links": {"Backward": [10, 30], "Forward": [80]},
            "Name": [{"Language": [], "Url": "http://C"}],
        },
    ],
    {
        "DocId": [(10, 0, 0), (20, 0, 0)],
        "Links.Backward": [(None, 0, 1), (10, 0, 2), (30, 1, 2)],
        "Links.Forward": [(20, 0, 2), (40, 1, 2), (60, 1, 2), (80, 0, 2)],
        "Name.Language.Code": [
            ("en-us", 0, 2), ("en", 2, 2), (None, 1, 1), ("en-gb", 1, 2), (None, 0, 1),
        ],
        "Name.Language.Country": [
            ("us", 0, 3), (None, 2, 2), (None, 1, 1), ("gb", 1, 3), (None, 0, 1),
        ],
        "Name.Url": [("http://A", 0, 2), ("http://B", 1, 2), (None, 1, 1), ("http://C", 0, 2)],
    },
)  # fmt: skip

ADDRESS_BOOK = Example(
    """message AddressBook {
      required string owner;
      repeated string ownerPhoneNumbers;
      repeated group contacts {
        required string name;
        optional string phoneNumber;
      }
    }""",
    [
        {
            "owner": "Julien Le Dem",
            "ownerPhoneNumbers": ["555 123 4567", "555 666 1337"],
            "contacts": [
                {"name": "Dmitriy Ryaboy", "phoneNumber": "555 987 6543"},
                {"name": "Chris Aniszczyk"},
            ],
        },
        {"owner": "A. Nonymous"},
    ],
    [
        {
            "owner": "Julien Le Dem",
            "ownerPhoneNumbers": ["555 123 4567", "555 666 1337"],
            "contacts": [
                {"name": "Dmitriy Ryaboy", "phoneNumber": "555 987 6543"},
                {"name": "Chris Aniszczyk", "phoneNumber": None},
            ],
        },
        {"owner": "A. Nonymous", "ownerPhoneNumbers": [], "contacts": []},
    ],
    {
        "owner": [("Julien Le Dem", 0, 0), ("A. Nonymous", 0, 0)],
        "ownerPhoneNumbers": [("555 123 4567", 0, 1), ("555 666 1337", 1, 1), (None, 0, 0)],
        "contacts.name": [("Dmitriy Ryaboy", 0, 1), ("Chris Aniszczyk", 1, 1), (None, 0, 0)],
        "contacts.phoneNumber": [("555 987 6543", 0, 2), (None, 1, 1), (None, 0, 0)],
    },
)

DEFINED = Example(
    "message m { optional group a { optional group b { optional string c; } } }",
    [{"a": None}, {"a": {"b": None}}, {"a": {"b": {"c": None}}}, {"a": {"b": {"c": "foo"}}}],
    [{"a": None}, {"a": {"b": None}}, {"a": {"b": {"c": None}}}, {"a": {"b": {"c": "foo"}}}],
    {"a.b.c": [(None, 0, 0), (None, 0, 1), (None, 0, 2), ("foo", 0, 3)]},
)

_NESTED = [
    {"level1": [{"level2": ["a", "b", "c"]}, {"level2": ["d", "e", "f", "g"]}]},
    {"level1": [{"level2": ["h"]}, {"level2": ["i", "j"]}]},
]
NESTED = Example(
    "message nestedLists { repeated group level1 { repeated string level2; } }",
    _NESTED,
    _NESTED,
    {
        "level1.level2": [
            (value, level, 2) for value, level in zip("abcdefghij", [0, 2, 2, 1, 2, 2, 2, 0, 1, 2], strict=True)
        ]
    },
)

EXAMPLES = {"Document": DOCUMENT, "AddressBook": ADDRESS_BOOK, "a.b.c": DEFINED, "nestedLists": NESTED}


async def _write(example: Example, store: MemoryStore, **options: Any) -> None:
    schema = rpq.Schema.parse(example.schema)
    async with rpq.create((store, "file"), schema, compression="none", **options) as writer:
        await writer.write(example.records)


async def _entries(store: MemoryStore) -> dict[str, Entries]:
    """Value, repetition and definition level of every entry of every leaf, over all row groups."""
    data = memoryview(bytes((await store.read_tail("file", 1 << 40)).data))
    found: dict[str, Entries] = {}
    async with rpq.open((store, "file")) as file:
        for group in file.metadata.row_groups:
            for leaf, chunk in zip(file.schema.leaves, group.columns, strict=True):
                meta = chunk.meta_data
                assert meta is not None
                start = meta.dictionary_page_offset or meta.data_page_offset
                pages = list(pages_of(data[start : start + meta.total_compressed_size], start))
                column = decode_chunk(leaf, meta.codec, pages, group.num_rows)
                found.setdefault(leaf.column_path, []).extend(_of_column(column, meta.num_values))
    return found


def _of_column(column: LeafColumn, num_entries: int) -> Entries:
    nothing = np.zeros(num_entries, np.uint8)
    repetition = nothing if column.repetition_levels is None else column.repetition_levels
    definition = nothing if column.definition_levels is None else column.definition_levels
    values = column.values
    slots = iter(
        [values.value(at).decode() for at in range(len(values))] if isinstance(values, ByteArrays) else values.tolist()
    )
    leaf = column.leaf
    entries: Entries = []
    for r, d in zip(repetition.tolist(), definition.tolist(), strict=True):
        slot = next(slots) if d >= leaf.slot_definition_level else None
        entries.append((slot if d == leaf.max_definition_level else None, r, d))
    return entries


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_levels_in_the_file_are_the_published_ones(name: str, version: Any) -> None:
    example, store = EXAMPLES[name], MemoryStore()
    asyncio.run(_write(example, store, options=rpq.WriteOptions(data_page_version=version)))
    assert asyncio.run(_entries(store)) == example.columns


@pytest.mark.parametrize("name", EXAMPLES)
def test_levels_do_not_depend_on_pages_and_row_groups(name: str) -> None:
    example = EXAMPLES[name]
    for layout in ({"row_group_rows": 1}, {"options": rpq.WriteOptions(page_rows=1)}):
        store = MemoryStore()
        asyncio.run(_write(example, store, **layout))
        assert asyncio.run(_entries(store)) == example.columns


@pytest.mark.parametrize("name", EXAMPLES)
def test_records_come_back(name: str) -> None:
    example, store = EXAMPLES[name], MemoryStore()
    asyncio.run(_write(example, store))

    async def read() -> tuple[rpq.Schema, list[dict[str, Any]]]:
        async with rpq.open((store, "file")) as file:
            return file.schema, (await file.read()).to_pylist()

    schema, records = asyncio.run(read())
    assert schema == rpq.Schema.parse(example.schema)
    assert records == example.complete


@pytest.mark.parametrize("name", EXAMPLES)
def test_others_read_the_same_records(name: str) -> None:
    example, store = EXAMPLES[name], MemoryStore()
    asyncio.run(_write(example, store))
    data = bytes(asyncio.run(store.read_tail("file", 1 << 40)).data)
    assert pq.read_table(io.BytesIO(data)).to_pylist() == example.complete
