"""`rpq inspect`."""
