"""Demo from end to end: ``python -m examples.demo`` (``make demo``)."""
