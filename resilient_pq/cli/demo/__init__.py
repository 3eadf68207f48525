"""`rpq demo`."""
