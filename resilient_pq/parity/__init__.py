"""Parity over bytes of any kind: sidecars that `protect` makes, and files that `repair` and reads rebuild from them.

`reed_solomon`, `group_shape`, `group_record`, `group_encoder` and `sidecar_index` are sans-io.
"""
