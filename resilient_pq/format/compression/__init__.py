"""Codecs of pages. Sans-io."""
