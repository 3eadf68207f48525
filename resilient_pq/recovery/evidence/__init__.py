"""What the bytes of a damaged file tell of its row groups: one module for each kind of evidence."""
