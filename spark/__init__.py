"""Spark over the segment files.  Reads the layouts of `store.layout`; starts no server."""
