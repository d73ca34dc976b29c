"""Life cycle of a part of the broker: its routes, its figures, its files and its periodic work.

The broker calls, in this order:

- `routes`, `figures` and `exported_metrics`, once;
- `check` and `bind`, before the store is opened;
- `load`, when the store has recovered and no request is served yet;
- `listen`, when clients can connect, before the broker registers;
- `start`, when requests are served; the `periodic` work begins;
- `take_over`, `activate` and `deactivate`, when this replica begins or ends to serve the group, see `broker.role`;
- `configured`, when keys were updated;
- `answer_held` of all services of a term and then `stop` of all, when no new work may begin.  The last one to start is
  the first.  Requests of other peers are served between answers, not between stops.  Only `stop` is called after a
  failed start, and for services that last as long as the process;
- `save`, when nothing runs any more, unless the disk has failed.
"""

from collections.abc import Generator

from broker.periodic import Periodic
from sprocket.common.figures import Declared
from sprocket.metrics.declared import Metric
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.routes import Route


class Service:
    """Base class whose methods do nothing; a part overrides some.  All are called in the event loop's thread."""

    def routes(self) -> list[Route]:
        """Return the routes of the requests that it serves."""
        return []

    def figures(self) -> list[Declared]:
        """Return the figures that it shows to operators (GET_BROKER_RUNTIME_INFO, docs/figures.md)."""
        return []

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics that it exports (docs/metrics.md)."""
        return []

    def periodic(self) -> list[Periodic]:
        """Return its periodic work."""
        return []

    def check(self) -> None:
        """Raise ConfigError for a configuration with which it cannot start.  Writes nothing."""

    async def bind(self) -> None:
        """Bind its own port, without serving it.  Raises ConfigError if that fails."""

    def load(self) -> None:
        """Load its files.  Raises `StoreError` if a file and its backup cannot be read."""

    async def listen(self) -> None:
        """Serve its own port.  Raises ConfigError if another process has bound it meanwhile."""

    def start(self) -> None:
        """Start its work."""

    def take_over(self) -> None:
        """Read from the tables how far another replica has done the work of `activate`.  Before `activate`."""

    def activate(self) -> None:
        """Start the work that only one replica of a group may do.  After `start`; again after `deactivate`."""

    def deactivate(self) -> None:
        """End the work of `activate`, because another replica does it from now on.  Before `stop`."""

    def configured(self, changed: dict[str, str]) -> None:
        """Obey `changed` keys that it does not read each time; empty once the port is known."""

    def answer_held(self) -> Generator[None, None, None]:
        """Answer held requests in steps, between which others are served, and hold no more of them."""
        yield from ()

    def stop(self) -> None:
        """Start no new work; answer the held requests that are left."""

    def save(self) -> None:
        """Write its changed files; the log is flushed.  Raises `StoreError`."""

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Release what belongs to a closed client connection."""
