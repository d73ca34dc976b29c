"""Current configuration: the values of the start, with the updates since then."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.plan.version import PlanVersion
from sprocket.common.config.configuration import Configuration, to_properties, updated
from sprocket.common.config.configuration_file import ConfigurationFile, kept
from sprocket.common.errors import ConfigError
from store.config.store_config import StoreConfig


class LiveConfig:
    """Holder of the frozen configuration objects; an accepted update replaces them.

    Read `broker` each time a value is needed, because a stored reference does not see updates.  `on_update` is called
    with the changed keys and values, and with an empty mapping once the port is known.
    """

    def __init__(self, broker: BrokerConfig, store: StoreConfig, file: ConfigurationFile | None = None) -> None:
        self._configuration = Configuration((broker, store))
        self._file = file
        self.broker = broker
        self.store = store
        self.update_count = 0
        self.note: str | None = None
        self.plan_version = PlanVersion()  # of this broker, for all its life
        self.on_update: list[Callable[[dict[str, str]], None]] = []

    def replace_broker(self, broker: BrokerConfig) -> None:
        """Replace the broker's configuration; the start completes it with values of the machine."""
        self._configuration = self._configuration.with_object(broker)
        self.broker = broker
        self._announce({})

    def _announce(self, changed: dict[str, str]) -> None:
        self.plan_version.rise()
        for listener in self.on_update:
            listener(changed)

    def update(self, text: bytes) -> dict[str, str]:
        """Apply an update request: lines of ``key=value``.  Return the changed values; `note` has a remark on them.

        All or nothing.  Raises ConfigError for an unknown or immutable key and for an invalid value, and
        ConfigurationNotKept if the file cannot store them.
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
        """Return every key and value, sorted: the body of a GET_BROKER_CONFIG response."""
        return to_properties(self._configuration)
