"""The replicator of one direction, on a host of the target's site."""

import sys
from pathlib import Path

from tests.chaos.failover.group import TOPIC, Program
from tests.chaos.failover.lan import Host
from tests.chaos.geo.sites import Site


class Replicator(Program):
    """Copies the topic from `source` to `target`."""

    def __init__(self, host: Host, directory: Path, source: Site, target: Site) -> None:
        super().__init__(host, "sprocket", directory, {})
        self.target = target
        self._text = "".join(
            [
                *(f'[clusters.{site.name}]\nnamesrv = "{site.namesrv_address}"\n\n' for site in (source, target)),
                f'[[links]]\nsource = "{source.name}"\ntarget = "{target.name}"\ntopics = ["{TOPIC}"]\n',
                "checkpoint-s = 1.0\noffsets-s = 1.0\nsend-timeout-s = 3.0\n",
            ]
        )

    def command(self, configuration: Path) -> list[str]:
        """Return what runs on the host."""
        configuration.write_text(self._text)
        program = Path(sys.executable).parent / "sprocket"
        # All have one name, against the rule, so several copy a link at the same time.
        return [str(program), "replicate", "run", "--config", str(configuration), "--name", "one"]
