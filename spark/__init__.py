"""Spark data source over segment files, in the layouts of `store.layout`; it starts no server."""
