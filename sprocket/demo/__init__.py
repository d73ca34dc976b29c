"""The main job, end to end: ``python -m sprocket.demo`` (``make demo``)."""
