"""System benchmark: whole brokers under a load generator of its own.  `python -m benchmarks.system.run --help`."""
