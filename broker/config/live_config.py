"""The configuration as it is now: what was read at the start, and what was updated since."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from sprocket.common.config import Configuration, to_properties, updated
from sprocket.common.configuration_file import ConfigurationFile, kept
from sprocket.common.errors import ConfigError
from store.config.store_config import StoreConfig


class LiveConfig:
    """Holds the frozen configuration objects and replaces them when an update is accepted.

    Read `broker` anew each time a value is needed; a reference kept aside does not see updates.  `on_update`
    is called with the keys and values that changed; with none once the port is known.
    """

    def __init__(self, broker: BrokerConfig, store: StoreConfig, file: ConfigurationFile | None = None) -> None:
        self._configuration = Configuration((broker, store))
        self._file = file
        self.broker = broker
        self.store = store
        self.update_count = 0
        self.note: str | None = None
        self.on_update: list[Callable[[dict[str, str]], None]] = []

    def replace_broker(self, broker: BrokerConfig) -> None:
        """Put `broker` in the place of the object held: the start fills in what the machine decides."""
        self._configuration = self._configuration.with_object(broker)
        self.broker = broker
        self._announce({})

    def _announce(self, changed: dict[str, str]) -> None:
        for listener in self.on_update:
            listener(changed)

    def update(self, text: bytes) -> dict[str, str]:
        """Apply an update request: lines of ``key=value``.  Returns what changed; `note` says what to know about it.

        All or nothing.  Raises ConfigError for a key that is unknown or may not change, and for a bad value, and
        ConfigurationNotKept where the file cannot keep them.
        """
        configuration, changed = updated(self._configuration, text)
        if "brokerPermission" in changed and not int(changed["brokerPermission"]) & 0x6:
            raise ConfigError("brokerPermission: allowed are 2, 4 and 6")
        self.note = kept(self._file, configuration, text)
        self._configuration = configuration
        self.broker = configuration.of(BrokerConfig)
        self.store = configuration.of(StoreConfig)
        if changed:
            self.update_count += 1
            self._announce(changed)
        return changed

    def to_properties(self) -> str:
        """Every key and its value, sorted: the body of a GET_BROKER_CONFIG response."""
        return to_properties(self._configuration)
