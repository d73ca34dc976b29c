"""Plans of batch queries, and the reads of their tasks."""
