"""Arrow types and Parquet types, and what one becomes in the other."""
