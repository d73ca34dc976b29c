"""Parts of many records at once, cut out of the log as arrays: bodies, topics, properties, CRCs, inner batches."""
