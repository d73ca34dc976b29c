"""``python -I -m sprocket.cli``: the command `sprocket` without its console script."""

from sprocket.cli.programs import sprocket

sprocket()
