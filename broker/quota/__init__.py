"""Quotas: how much accounts, topics, groups and addresses may send and read in a second.  See docs/quotas.md."""
