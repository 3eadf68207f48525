"""Tables of Iceberg and Delta: files that a sink has published, committed to a table exactly once.

May import `resilient_pq.reader`, `resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`. pyiceberg and
deltalake are imported by the module of each, where it is used.
"""
