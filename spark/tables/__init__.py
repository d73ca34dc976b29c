"""Topics kept as tables: Parquet, Delta or Iceberg, with bodies decoded by a declared type, exactly once.

Nothing here needs a Spark session: a task is a pure function from a range of the log to Parquet files, and the one
process that commits them needs `deltalake` or `pyiceberg` alone.  Spark may run the tasks (`spark.tables.workers`).
"""
