"""Trevni, an ancestor of Parquet: its files read as Arrow batches, and converted to Parquet."""
