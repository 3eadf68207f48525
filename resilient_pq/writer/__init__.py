"""Writing: batches in, bytes out (`encoder`, sans-io), when to cut what (`policy`, pure), and the async shell.

May import `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`; not the reader.
"""
