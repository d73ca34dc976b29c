"""Records: encoding, checksums, and scans over many at once."""
