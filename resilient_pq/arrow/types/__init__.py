"""Arrow types, Parquet types, and the conversions between them."""
