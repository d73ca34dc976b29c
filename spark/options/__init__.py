"""Options of reads and writes."""
