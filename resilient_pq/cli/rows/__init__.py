"""Verbs that print rows and facts of sound files, and where their rows come from."""
