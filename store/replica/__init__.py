"""Access of masters and slaves to the log that they replicate."""
