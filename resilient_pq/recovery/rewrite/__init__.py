"""The output of a recovery: the rows that are kept, laid out and written."""
