"""What an operator's tools see of a store directory: every file read as it is, nothing opened for writing."""
