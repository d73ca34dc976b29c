"""The process beside a broker that keeps topics as tables: checked before the broker says that it runs, supervised.

It reads the broker's files and asks it nothing, so the broker is not slower for it.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.processes.child_process import ChildProcess, bound, isolated
from sprocket.processes.supervised_process import SupervisedProcess

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from store.config.store_config import StoreConfig

_CHECK_LIMIT_S = 60.0


class TableProcess:
    """Runs ``sprocket spark tables`` for a broker; a server as `sprocket.cli.server.server_process` runs them."""

    def __init__(self, broker: "BrokerConfig", store: "StoreConfig", clock: Clock) -> None:
        root = Path(store.store_path_root_dir).absolute()
        self._arguments = ["spark", "tables", str(Path(broker.table_topics_config_path).absolute())]
        self._store = f"{broker.broker_name}={root}"
        child = ChildProcess("tables", bound("sprocket.cli", *self._arguments, self._store), root, root / "tables.log")
        self._supervised = SupervisedProcess(child, clock)

    @property
    def pid(self) -> int:
        """Of the process now."""
        return self._supervised.pid

    async def start(self) -> None:
        """Check the file, and start.  Raises ConfigError for a file that cannot be followed."""
        command = isolated("sprocket.cli", *self._arguments, "--check", self._store)
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
        """End it: what it has not committed it will do again."""
        await self._supervised.stop()
