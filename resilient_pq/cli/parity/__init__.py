"""`rpq protect` and `rpq repair`: sidecars with parity."""
