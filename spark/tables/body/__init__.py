"""Decoders of bodies to columns, by declared type."""
