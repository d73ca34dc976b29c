"""Topics of a broker: their table, attributes and retention."""
