"""Configuration of a running server without a store: a name server or a controller.

Everyone reads it; only update requests change it.
"""

from collections.abc import Callable
from typing import Generic

from sprocket.common.config import configuration
from sprocket.common.config.configuration import C, Configuration
from sprocket.common.config.configuration_file import ConfigurationFile, kept


class LiveSettings(Generic[C]):
    """Configuration in force.  `file` keeps updates; without it they last until the process ends.

    `on_update` is called with the changed keys and values, once they are in force.
    """

    def __init__(self, initial: C, file: ConfigurationFile | None = None) -> None:
        self._configuration = Configuration((initial,))
        self._file = file
        self.note: str | None = None
        self.current = initial
        self.on_update: list[Callable[[dict[str, str]], None]] = []

    def text(self) -> str:
        """Return all keys and values as a properties file."""
        return configuration.to_properties(self._configuration)

    def mutable_keys(self) -> list[str]:
        """Return the keys that may change while the server runs."""
        return configuration.mutable_keys(self._configuration)

    def update(self, text: bytes) -> dict[str, str]:
        """Apply the entries of a properties file, all or none.  Return what changed.

        `note` then holds a remark for the operator.  Raises ConfigError, and ConfigurationNotKept if the file cannot be
        written.
        """
        after, changed = configuration.updated(self._configuration, text)
        self.note = kept(self._file, after, text)
        self._configuration = after
        self.current = self._configuration.of(type(self.current))
        if changed:
            for listener in self.on_update:
                listener(changed)
        return changed
