"""`rpq uploads`: what writers to S3 left when they died."""

from __future__ import annotations

NAME = "uploads"
HELP = """List, complete or abort uploads that were left open.

A writer to S3 that dies leaves an upload, which no listing of objects shows and which is paid for. Every row that its
checkpoints stored is in it, and completing it makes a Parquet file of these; no data is moved.
"""
EPILOG = (
    "\b\nA rescue:\n"
    "  rpq uploads list s3://bucket\n"
    "  rpq uploads complete s3://bucket/day.parquet\n"
    "  rpq check s3://bucket/day.parquet"
)
