"""``python -I -m sprocket_cli``: the command `sprocket` without its console script."""

from sprocket_cli.programs import sprocket

sprocket()
