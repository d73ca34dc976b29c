"""Supervised processes beside a broker: one writes topics to tables, one replicates.  They end with the broker.

What happens to them changes nothing in the broker, whose loop and memory they do not share.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.processes.child_process import ChildProcess, bound, isolated
from sprocket_cli.processes.supervised_process import SupervisedProcess
from sprocket_cli.server.server_process import Server

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from store.config.store_config import StoreConfig

logger = logging.getLogger(__name__)

_CHECK_LIMIT_S: Final = 60.0


def processes_beside(broker: "BrokerConfig", store: "StoreConfig", clock: Clock) -> list[Callable[[], Server]]:
    """Return the factories of the processes that a broker's configuration names."""
    found: list[Callable[[], Server]] = []
    if broker.table_topics_config_path:
        found.append(lambda: TableProcess(broker, store, clock))
    if broker.replication_config_path:
        found.append(lambda: ReplicatorProcess(broker, store, clock))
    return found


class TableProcess:
    """Runner of ``sprocket spark tables`` for a broker.

    Its configuration is checked before the broker prints its start line.  It reads the broker's files and sends no
    requests.
    """

    def __init__(self, broker: "BrokerConfig", store: "StoreConfig", clock: Clock) -> None:
        root = Path(store.store_path_root_dir).absolute()
        self._arguments = ["spark", "tables", str(Path(broker.table_topics_config_path).absolute())]
        self._store = f"{broker.broker_name}={root}"
        child = ChildProcess("tables", bound("sprocket_cli", *self._arguments, self._store), root)
        self._supervised = SupervisedProcess(child, clock)

    @property
    def pid(self) -> int:
        """Id of the running process."""
        return self._supervised.pid

    async def start(self) -> None:
        """Check the file of tables, and start.  Raises ConfigError if the file is wrong."""
        command = isolated("sprocket_cli", *self._arguments, "--check", self._store)
        checking = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_CHECK_LIMIT_S):
                _, said = await checking.communicate()
        except BaseException:
            checking.kill()
            raise
        if checking.returncode:
            reason = said.decode(errors="replace").strip().removeprefix("Error: ")
            raise ConfigError(f"tableTopicsConfigPath: {reason}")
        await self._supervised.start()

    async def stop(self) -> None:
        """Stop the process; the next one repeats what is not committed."""
        await self._supervised.stop()


class ReplicatorProcess:
    """Runner of ``sprocket replicate run`` for a broker.  A wrong file, too, is only logged, and tried again."""

    def __init__(self, broker: "BrokerConfig", store: "StoreConfig", clock: Clock) -> None:
        root = Path(store.store_path_root_dir).absolute()
        path = str(Path(broker.replication_config_path).absolute())
        child = ChildProcess("replicator", bound("sprocket_cli", "replicate", "run", "--config", path), root)
        self._supervised = SupervisedProcess(child, clock)

    async def start(self) -> None:
        """Start the process."""
        try:
            await self._supervised.start()
        except OSError as error:
            peer_lines.error(logger, "", "event=process_not_started name=replicator reason=%r", str(error))

    async def stop(self) -> None:
        """Stop the process; another replicator takes over."""
        await self._supervised.stop()
