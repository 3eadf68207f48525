"""Parquet itself, sans-io: bytes in, values out, and back; it knows no file, no event loop and no clock."""
