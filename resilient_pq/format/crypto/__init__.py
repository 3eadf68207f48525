"""Parquet Modular Encryption (parquet-format, Encryption.md): modules, keys of a file, and its footer. Sans-io.

A module is what is encrypted by itself: a footer, a page header, the body of a page, an index, a bloom filter. Records
of ours are modules, too (docs/format.md).
"""
