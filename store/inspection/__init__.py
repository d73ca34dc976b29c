"""Inspection of a store directory for an operator's tools: it reads every file and opens none for writing."""
