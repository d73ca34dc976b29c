"""Reads what a server is told, and says in words what that means."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from broker.config import BrokerConfig
from namesrv.config import NamesrvConfig
from sprocket.common.config import Configuration, load
from sprocket.common.errors import ConfigError
from store.config import FlushDiskType, StoreConfig

NAMESRV_CLASSES: Final = (NamesrvConfig,)
BROKER_CLASSES: Final = (BrokerConfig, StoreConfig)


def namesrv_configuration(file: Path | None, overrides: Iterable[str] = ()) -> Configuration:
    """The configuration of a name server.  Raises ConfigError."""
    return load(NAMESRV_CLASSES, file, _pairs(overrides))


def broker_configuration(file: Path | None, namesrv: str | None, overrides: Iterable[str] = ()) -> Configuration:
    """The configuration of a broker; `namesrv` wins over the file.  Raises ConfigError."""
    given = {} if namesrv is None else {"namesrvAddr": namesrv}
    return load(BROKER_CLASSES, file, given | _pairs(overrides))


def _pairs(overrides: Iterable[str]) -> dict[str, str]:
    """``key=value`` words as a map.  Raises ConfigError."""
    pairs = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"command line: {word!r}: allowed is key=value")
        pairs[key.strip()] = value
    return pairs


def durability(broker: BrokerConfig, store: StoreConfig) -> str:
    """What an acknowledged message of this broker survives, in words."""
    if store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        kept = "a send is answered when it is on the disk: it survives a crash and a power cut"
    else:
        seconds = store.flush_commit_log_thorough_interval / 1000
        kept = (
            "a send is answered before it is on the disk: it survives a crash of the broker, "
            f"but a power cut may lose up to the last {seconds:g} s"
        )
    return f"{kept}; {broker.broker_role} keeps one copy, so losing the disk loses all"
