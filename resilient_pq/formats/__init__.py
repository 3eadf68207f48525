"""Files of formats that Parquet came from, or that came before it: read as Arrow tables, and made into Parquet.

One package for each format, sans-io, and beside them the async shells that read and convert.
"""
