"""Quotas: how much accounts, topics, groups, addresses and namespaces may use in a second.  See docs/quotas.md."""
