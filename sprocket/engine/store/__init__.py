"""What compiled modules share of the store: the layout of records, their checks, their writer, CRCs."""
