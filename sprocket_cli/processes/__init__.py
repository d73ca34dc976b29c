"""Processes of commands: a supervised one, and local clusters that outlive the command.

Each starts in Python's isolated mode (``-I``), so the caller's import path and folder do not affect it.
"""
