"""Replication as a master sees it: sessions with slaves, and the tables that travel with the log."""
