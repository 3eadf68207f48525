"""Parquet itself, sans-io: bytes in, values out, and back.

This room knows no file, no socket, no event loop and no clock. It may import `resilient_pq.errors`,
NumPy and the codecs, and nothing else of ours.
"""
