"""Static topics: the rules for logical queues, which brokers, tools and clients share; nothing here does I/O."""
