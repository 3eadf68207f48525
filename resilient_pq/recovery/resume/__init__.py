"""Resuming a file that its writer left unfinished."""
