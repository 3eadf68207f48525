"""Reading: what to fetch (`plan`, pure), bytes to columns (`decoder`, sans-io), and the async shell (`file`).

May import `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`; not the writer.
"""
