"""Servers of a previous version: their directories, and rolling upgrades."""
