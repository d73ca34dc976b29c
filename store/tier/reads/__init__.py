"""Reads of an archive by a broker: blocks in memory and on their way, messages of queues, single records."""
