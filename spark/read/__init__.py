"""Plans of batch queries, and the tasks that read the log."""
