"""Reading of Parquet files: plans (`read_plan`, pure), decoding (`decoder`, sans-io), and the async shells (`file`, and
`chunk_objects` for the bytes of chunks, which lie in other files where the file is a summary).

May import `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`; not the writer.
"""
