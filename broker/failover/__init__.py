"""Slaves that act for a lost master, and the way back when it returns."""
