"""Flow control of cold reads (of messages that are no longer in memory), per group."""
