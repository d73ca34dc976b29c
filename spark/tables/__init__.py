"""Topics written to tables (Parquet, Delta, Iceberg) exactly once, with bodies decoded by a declared type.

Nothing here needs a Spark session.  A task is a pure function from a range of the log to Parquet files; the process
that commits them needs only `deltalake` or `pyiceberg`.  Spark may run the tasks (`spark.tables.workers`).
"""
