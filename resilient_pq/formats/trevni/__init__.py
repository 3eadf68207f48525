"""Trevni, Parquet's ancestor, sans-io: bytes to values and back.

Two dialects share one container (Avro, "Trevni: A Column File Format", 0.1; Impala, ``be/src/exec/trevni-def.h`` of
May 2012): a header, then column after column, each a table of its blocks and the blocks themselves.

The draft's dialect, ``Trv`` and 1, as Impala wrote it, keeps definition and repetition levels behind the values of each
block. Avro's (``Trv`` and 0, 1 or 2, of which 2 was the last) keeps the lengths of arrays among the values, and a
value that may be null is an array of at most one. No file has to be taken for one or the other: a column says by its
metadata which it is, and all that the version decides are two details (`header.Version`).
"""
