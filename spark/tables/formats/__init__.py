"""Tables as Parquet files, Delta or Iceberg."""
