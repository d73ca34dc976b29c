"""Acknowledgements of popped messages: rules, the compiled kernel, and acknowledgements in order."""
