"""The ledger of a recovery: what every byte of the input is, and what became of every row."""
