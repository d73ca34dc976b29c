"""A part of the broker with a life of its own: what it serves, keeps in files, and does again and again.

The broker calls, in this order: `routes` once; `check` and `bind` before the store is opened; `load` when the store has
recovered and nobody is served yet; `listen` when clients can connect, before anybody is told of it; `start` when they
are served; `periodic` work from then on; `take_over`, `activate` and `deactivate` as this replica becomes the one that
serves the group, see `broker.role`, and ceases to be; `stop` when no new work may begin, also after a start that
failed; `save` once nothing runs any more, unless the disk has failed.
"""

from broker.periodic import Periodic
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.routes import Route


class Service:
    """Does nothing; a part overrides what it needs.  Everything is called in the event loop's thread."""

    def routes(self) -> list[Route]:
        """What it answers."""
        return []

    def periodic(self) -> list[Periodic]:
        """What it does again and again."""
        return []

    def check(self) -> None:
        """Raise ConfigError for a configuration that it cannot start with.  Writes nothing."""

    async def bind(self) -> None:
        """Take a port of its own, without serving it.  Raises ConfigError if it cannot be had."""

    def load(self) -> None:
        """Take what its files hold.  Raises `StoreError` if they are broken beyond repair."""

    async def listen(self) -> None:
        """Serve the port of its own.  Raises ConfigError if another process has taken it since."""

    def start(self) -> None:
        """Begin to work."""

    def take_over(self) -> None:
        """Another replica did what `activate` begins: go on where the tables say that it was.  Before `activate`."""

    def activate(self) -> None:
        """Begin what one replica of a group alone may do.  After `start`; may come again after `deactivate`."""

    def deactivate(self) -> None:
        """End what `activate` began.  Before `stop`; another replica does it from now on."""

    def stop(self) -> None:
        """Begin nothing more; answer what is held."""

    def save(self) -> None:
        """Write its files, as far as they have changed; the log is flushed.  Raises `StoreError`."""

    def channel_closed(self, channel: RemotingChannel) -> None:
        """A client's connection is gone."""
