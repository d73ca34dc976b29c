"""What Spark makes of the log, beside Parquet of the same rows."""
