"""Servers of a previous version of Sprocket, from a folder with its source code."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.compat.cluster import SprocketCluster

# Folder with the source code of a previous version, such as `git archive COMMIT | tar x -C FOLDER` makes.
SOURCE_VARIABLE: Final = "SPROCKET_PREVIOUS"
_RUN: Final = "import sys; sys.path.insert(0, {source!r}); from {module} import main; main()"


def previous_source() -> Path | None:
    """Return the folder that the environment names, None without one."""
    named = os.environ.get(SOURCE_VARIABLE)
    return Path(named).absolute() if named else None


def previous_broker(source: Path, configuration: Path) -> Sequence[str]:
    """Return the argv of a broker of the version in `source`."""
    return previous_server(source, "mqbroker", configuration)


def previous_server(source: Path, program: str, configuration: Path) -> Sequence[str]:
    """Return the argv of a server of the version in `source`; `program` is its command."""
    code = _RUN.format(source=str(source), module=f"sprocket.cli.server.{program}")
    return [sys.executable, "-c", code, "-c", str(configuration)]


class PreviousCluster(SprocketCluster):
    """Name server of this version, and brokers of the version in `source`."""

    def __init__(self, source: Path, directory: Path, *, brokers: int = 1, properties: Mapping[str, str]) -> None:
        self._source = source
        super().__init__(directory, brokers=brokers, properties=properties)

    def broker_command(self, configuration: Path) -> Sequence[str]:
        return previous_broker(self._source, configuration)
