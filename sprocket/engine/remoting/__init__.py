"""What compiled modules share of the wire protocol: texts and numbers of headers, slots, SHA-1."""
