"""Records: encoding, decoding, checksums."""
