"""Command of a writer of a page: ``python -m docs.pages.<page> <file>``."""

import sys
from pathlib import Path


def write(page: str) -> None:
    """Write a page to the file that the command line names first."""
    Path(sys.argv[1]).write_text(page, encoding="utf-8")
