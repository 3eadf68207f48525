"""Arrow in and out: the C data interface on one side, levels and values of Parquet leaves on the other.

nanoarrow is the only Arrow library that is imported; pyarrow, Polars and pandas are imported when a caller
asks for one of their tables. May import `format`, the errors, NumPy and nanoarrow.
"""
