"""A master's side of replication: sessions with slaves, and the tables that travel with the log."""
