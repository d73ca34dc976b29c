"""What a broker gets from its process: clock, configuration, files, event loop, and who is told of a fatal error."""

import asyncio
import logging
from collections.abc import Callable

from broker.config.live_config import LiveConfig
from sprocket.common.clock import Clock
from sprocket.common.errors import RestartNeeded, SprocketError
from sprocket.common.files.config_file import ConfigFile

logger = logging.getLogger(__name__)

Fatal = Callable[[SprocketError], None]


def log_fatal(error: SprocketError) -> None:
    """Log `error`; the default for a broker whose owner does not want to be told."""
    logger.critical("event=fatal reason=%r", str(error))


class Environment:
    """Surroundings of one broker; all its parts share it."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        on_fatal: Fatal,
        random_below: Callable[[int], int],
        holds_lease: Callable[[], bool] | None = None,
        restart: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        # Whether controllers let a master acknowledge now; None for a broker without controllers.
        self.holds_lease = holds_lease
        self.clock = clock
        self.random_below = random_below
        self._on_fatal = on_fatal
        self._restart = restart
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: SprocketError | None = None
        # With controllers: listeners for a master epoch that another replica of the group knows.
        self.on_newer_epoch: list[Callable[[int], None]] = []

    def newer_epoch(self, epoch: int) -> None:
        """Tell the listeners of an epoch that is newer than that of this master."""
        for listener in self.on_newer_epoch:
            listener(epoch)

    def use_running_loop(self) -> None:
        """Run from now on in the loop that runs."""
        self._loop = asyncio.get_running_loop()

    def notify(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread; called from other threads.  Does nothing without a loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def fail(self, error: SprocketError) -> None:
        """Tell the owner of the process of the first error that the broker cannot survive.

        A broker under controllers restarts its store within the process.
        """
        if self._restart is not None and isinstance(error, RestartNeeded):
            self._restart()
        elif self._fatal is None:
            self._fatal = error
            self._on_fatal(error)

    def file(self, name: str) -> ConfigFile:
        """Return the file `name` of the store's folder ``config``; a failed write is fatal."""
        path = self.config.store.store_path_root_dir / "config" / name
        return ConfigFile(path, failed=lambda error: self.notify(lambda: self.fail(error)))
