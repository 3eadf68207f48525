"""Many Parquet files made into few: large row groups are copied as bytes, small ones are written together."""
