"""Recovering: what a damaged object still holds (`scan`, `survey`), whether it is whole (`verify`), which row
groups to keep (`choose`), and the async shells that write the new object (`salvage`) or complete an upload
that was left open (`uploads`). `report` is what all of them answer with.

May import the reader, the writer, `resilient_pq.format` and `resilient_pq.io`.
"""
