"""Processes of Sprocket that another one starts: children that end with it, and local clusters that outlive it.

Everything is started in Python's isolated mode (``-I``): nothing of the caller's import path or folder is lent to it.
"""
