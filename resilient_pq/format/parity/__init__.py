"""Reed-Solomon parity over bytes of any kind: groups, their records, and the rebuilding of lost blocks."""
