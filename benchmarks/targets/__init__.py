"""The targets of both engines: `python -m benchmarks.targets` measures each row and says which were reached."""
