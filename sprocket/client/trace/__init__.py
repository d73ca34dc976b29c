"""Message traces: what clients record of a message's way, how it is encoded, sent, read and exported."""
