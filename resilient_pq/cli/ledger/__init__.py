"""A recovery's ledger as a map in the terminal."""
