"""Objects that are written in parts, and who may write them."""
