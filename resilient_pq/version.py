"""The version of this package, and how its files name their maker."""

__version__ = "0.2.0"

#: How `CREATED_BY` begins in every version.
MAKER = "resilient_pq version "
#: FileMetaData.created_by, in the form that parquet.thrift asks for.
CREATED_BY = f"{MAKER}{__version__} (build {__version__})"
