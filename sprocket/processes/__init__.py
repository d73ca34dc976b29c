"""Processes that Sprocket starts: children that end with their parent, and local clusters that outlive it.

Each starts in Python's isolated mode (``-I``), so the caller's import path and folder do not affect it.
"""
