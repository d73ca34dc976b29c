"""``python -I -m sprocket.cli``: the command `sprocket` without its console script."""

from sprocket.cli.main import main

main(prog_name="sprocket")
