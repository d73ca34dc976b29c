"""Figures of a running broker."""
