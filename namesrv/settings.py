"""The configuration of a running name server: read by everyone, changed by update requests only."""

from namesrv.config import NamesrvConfig
from sprocket.common import config
from sprocket.common.config import Configuration


class Settings:
    """Holds the configuration that is in force; an update lasts until the process ends."""

    def __init__(self, initial: NamesrvConfig) -> None:
        self._configuration = Configuration((initial,))
        self.current = initial

    def text(self) -> str:
        """All keys and values as a properties file."""
        return config.to_properties(self._configuration)

    def mutable_keys(self) -> list[str]:
        return config.mutable_keys(self._configuration)

    def update(self, text: bytes) -> dict[str, str]:
        """Put the entries of a properties file in force, all or none; what changed.  Raises ConfigError."""
        self._configuration, changed = config.updated(self._configuration, text)
        self.current = self._configuration.of(NamesrvConfig)
        return changed
