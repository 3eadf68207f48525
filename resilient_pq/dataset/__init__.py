"""Folders of files as one data set: what their footers have in common (pure), and the summary written of them.

May import `resilient_pq.reader`, `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`.
"""
