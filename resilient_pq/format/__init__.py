"""Parquet itself, sans-io: bytes in, values out, and back.

Knows no file, no socket, no event loop and no clock. It imports the modules at the top of the package that know nothing
of the others, NumPy and the codecs.
"""
