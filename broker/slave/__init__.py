"""Replication as a slave sees it: following a master, its tables, and what a slave serves."""
