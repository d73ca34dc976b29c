"""Reads the configuration of a server, and describes the durability that it gives."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig, BrokerRole
from controller.config import ControllerConfig
from namesrv.config import NamesrvConfig
from sprocket.common.config.configuration import Configuration, load
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.settings import TlsSettings, system_properties
from store.config.store_config import FlushDiskType, StoreConfig

NAMESRV_CLASSES: Final = (NamesrvConfig, TlsSettings)
CONTROLLER_CLASSES: Final = (ControllerConfig, TlsSettings)
BROKER_CLASSES: Final = (BrokerConfig, StoreConfig, TlsSettings)


def namesrv_configuration(file: Path | None, overrides: Iterable[str] = ()) -> Configuration:
    """Return the configuration of a name server, with that of its controller if it has one.  Raises ConfigError."""
    given, defaults = _pairs(overrides), system_properties(os.environ)
    alone = load(NAMESRV_CLASSES, file, given, defaults)
    if not alone.of(NamesrvConfig).enable_controller_in_namesrv:
        return alone
    return load((*NAMESRV_CLASSES, ControllerConfig), file, given, defaults)


def controller_configuration(file: Path | None, overrides: Iterable[str] = ()) -> Configuration:
    """Return the configuration of a controller.  Raises ConfigError."""
    return load(CONTROLLER_CLASSES, file, _pairs(overrides), system_properties(os.environ))


def broker_configuration(file: Path | None, namesrv: str | None, overrides: Iterable[str] = ()) -> Configuration:
    """Return the configuration of a broker; `namesrv` overrides the file.  Raises ConfigError."""
    given = {} if namesrv is None else {"namesrvAddr": namesrv}
    return load(BROKER_CLASSES, file, given | _pairs(overrides), system_properties(os.environ))


def proxy_configuration(file: Path | None, given: Mapping[str, str], overrides: Iterable[str] = ()) -> Configuration:
    """Return the configuration of a proxy; `given` overrides the file, and $NAMESRV_ADDR is used without either.

    Raises ConfigError.
    """
    # Only here: the proxy needs an extra.
    from proxy.config import ProxyConfig
    from proxy.config import load as load_proxy

    configuration = load_proxy(file, {**given, **_pairs(overrides)})
    config = configuration.of(ProxyConfig)
    if config.namesrv_addr or not os.environ.get("NAMESRV_ADDR"):
        return configuration
    return configuration.with_object(replace(config, namesrv_addr=os.environ["NAMESRV_ADDR"]))


def _pairs(overrides: Iterable[str]) -> dict[str, str]:
    """Return ``key=value`` words as a map.  Raises ConfigError."""
    pairs = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"command line: {word!r}: allowed is key=value")
        pairs[key.strip()] = value
    return pairs


def durability(broker: BrokerConfig, store: StoreConfig) -> str:
    """Return a sentence on what an acknowledged message of this broker survives."""
    seconds = store.flush_commit_log_thorough_interval / 1000
    is_sync = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    if broker.broker_role is BrokerRole.SLAVE:
        flushed = "flushes what it receives at once" if is_sync else f"flushes what it receives within {seconds:g} s"
        return f"SLAVE takes no sends: it keeps a copy of its master's log as far as it has followed, and {flushed}"
    if is_sync:
        kept = "a send is answered when it is on the disk: it survives a crash and a power cut"
    else:
        kept = (
            "a send is answered before it is on the disk: it survives a crash of the broker, "
            f"but a power cut may lose up to the last {seconds:g} s"
        )
    if broker.broker_role is BrokerRole.SYNC_MASTER:
        return f"{kept}; {_replicated(store)}"
    return (
        f"{kept}; {broker.broker_role} waits for no slave and counts on one copy, so losing the disk loses what no "
        "slave has yet, and all without a slave"
    )


def _replicated(store: StoreConfig) -> str:
    """Return a clause on what SEND_OK of a SYNC_MASTER says about slaves."""
    slaves = max(2, store.in_sync_replicas) - 1
    have = "1 slave has" if slaves == 1 else f"{slaves} slaves have"
    if store.all_ack_in_sync_state_set:
        have = "all slaves in sync have"
    how = "on disk (a slave of RocketMQ: in memory)" if store.ha_ack_flushed_offset else "in memory at the least"
    min_replicas = store.min_in_sync_replicas
    if store.enable_auto_in_sync_replicas:
        fewer = (
            f"fewer if fewer are in sync, down to {min_replicas} replica{'s' if min_replicas > 1 else ''} with this one"
        )
        return f"SEND_OK of a SYNC_MASTER says that {have} it too, {how}; {fewer}"
    says = f"SEND_OK of a SYNC_MASTER says that {have} it too, {how}: then it survives the loss of this disk"
    if min_replicas > 1:
        return f"{says}; with fewer than {min_replicas} replicas in sync sends are refused"
    return f"{says}; with too few in sync the answer is SLAVE_NOT_AVAILABLE, and it counts on one copy"
