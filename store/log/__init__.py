"""The CommitLog: all records of the broker in order of arrival."""
