"""The CommitLog: all records of the broker in the order of their arrival."""
