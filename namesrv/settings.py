"""The configuration of a running name server: read by everyone, changed by update requests only."""

from namesrv.config import NamesrvConfig
from sprocket.common import config
from sprocket.common.config import Configuration
from sprocket.common.configuration_file import ConfigurationFile, kept


class Settings:
    """Holds the configuration that is in force; `file` keeps updates, without one they last until the process ends."""

    def __init__(self, initial: NamesrvConfig, file: ConfigurationFile | None = None) -> None:
        self._configuration = Configuration((initial,))
        self._file = file
        self.note: str | None = None
        self.current = initial

    def text(self) -> str:
        """All keys and values as a properties file."""
        return config.to_properties(self._configuration)

    def mutable_keys(self) -> list[str]:
        return config.mutable_keys(self._configuration)

    def update(self, text: bytes) -> dict[str, str]:
        """Put the entries of a properties file in force, all or none; what changed; `note` is for who sent them.

        Raises ConfigError, and ConfigurationNotKept where the file cannot keep them.
        """
        after, changed = config.updated(self._configuration, text)
        self.note = kept(self._file, after, text)
        self._configuration = after
        self.current = self._configuration.of(NamesrvConfig)
        return changed
