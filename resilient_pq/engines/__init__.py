"""Lazy reads for query engines: Polars and DuckDB ask for the columns and rows that a query needs.

May import `resilient_pq.dataset` and what that imports, and the blocking names.
"""
