"""Demo from end to end: ``python -m sprocket.demo`` (``make demo``)."""
