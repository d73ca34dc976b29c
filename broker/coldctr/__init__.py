"""Flow control of reads of old messages, per group."""
