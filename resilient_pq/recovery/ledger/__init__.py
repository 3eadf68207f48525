"""The ledger of a recovery: what every byte of the input is, what became of every row, and a page of HTML of it."""
