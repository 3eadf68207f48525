"""Reading: what to fetch (`plan`, pure), bytes to columns (`decoder`, sans-io), and the async shells (`file`, and
`chunk_objects` for the bytes of chunks, which in a summary lie in other files).

May import `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`; not the writer.
"""
