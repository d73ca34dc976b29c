"""Request handlers for operators: topics, groups, offsets, accounts, and the broker itself."""
