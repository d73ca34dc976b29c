"""Child processes that end with their parent.

Each starts in Python's isolated mode (``-I``), so the caller's import path and folder do not affect it.
"""
