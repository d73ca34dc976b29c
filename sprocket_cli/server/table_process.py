"""Supervised process beside a broker that writes topics to tables.

Its configuration is checked before the broker prints its start line.  It reads the broker's files and sends no
requests, so it does not slow down the broker.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.common.processes.child_process import ChildProcess, bound, isolated
from sprocket_cli.processes.supervised_process import SupervisedProcess

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from store.config.store_config import StoreConfig

_CHECK_LIMIT_S = 60.0


class TableProcess:
    """Runner of ``sprocket spark tables`` for a broker; a `Server` of `sprocket_cli.server.server_process`."""

    def __init__(self, broker: "BrokerConfig", store: "StoreConfig", clock: Clock) -> None:
        root = Path(store.store_path_root_dir).absolute()
        self._arguments = ["spark", "tables", str(Path(broker.table_topics_config_path).absolute())]
        self._store = f"{broker.broker_name}={root}"
        child = ChildProcess("tables", bound("sprocket_cli", *self._arguments, self._store), root, root / "tables.log")
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
