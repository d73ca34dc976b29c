"""A slave's side of replication: following a master, its tables, and what a slave serves."""
