"""Parquet Modular Encryption (parquet-format, Encryption.md): modules, keys of a file, and its footer. Sans-io."""
