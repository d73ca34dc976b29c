"""Demo from end to end: ``python -m sprocket_cli.demo`` (``make demo``)."""
