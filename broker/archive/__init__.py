"""The archive of the broker's log: upload, and what the local disk may drop."""
