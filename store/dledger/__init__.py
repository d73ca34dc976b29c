"""Files of RocketMQ's DLedger mode: how they are recognised, read, and turned into a CommitLog."""
