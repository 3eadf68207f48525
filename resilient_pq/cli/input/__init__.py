"""Rows from files of other forms and from stdin."""
