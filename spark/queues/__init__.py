"""Reads by ConsumeQueue: queues, their bounds, and the records of ranges of entries."""
