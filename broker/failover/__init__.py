"""Slaves that act for a lost master, and the handover when the master returns."""
