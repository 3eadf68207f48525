"""A recovery's ledger for people: as a map in the terminal, and as a page of HTML."""
