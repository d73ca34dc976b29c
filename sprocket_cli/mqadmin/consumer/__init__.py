"""Commands for consumer groups: their settings, progress, offsets and connections."""
