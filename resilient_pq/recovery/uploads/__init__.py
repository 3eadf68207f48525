"""Uploads that were begun and never completed: listed, completed and aborted."""
