"""DLedger mode: each broker of a group runs a controller of that group alone, in its own process.

So the elections, leases and epochs are those of controller mode, and the files are those of every mode.  A message is
acknowledged when a majority of the group has it.  Source of the keys: RocketMQ 5.3.3, `DLedgerCommitLog`, and DLedger's
`DLedgerConfig`.
"""

import json
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from broker.auth.access_control import server_account
from broker.config.broker_config import BrokerConfig, BrokerRole
from controller.config import ControllerConfig
from ha.raft.members import check_members, parse_members
from sprocket.common.errors import ConfigError
from store.config.store_config import StoreConfig

_LEAST_MEMBERS: Final = 3
_FIRST: Final = 0
# Settings that the controller shares with its broker.
_SHARED: Final = (AuthSettings, GateSettings)


@dataclass(frozen=True)
class DLedgerMode:
    """Configuration of the broker, its store, and the controller beside it."""

    broker: BrokerConfig
    store: StoreConfig
    controller: ControllerConfig


def dledger_mode(broker: BrokerConfig, store: StoreConfig) -> DLedgerMode | None:
    """Return what a broker in DLedger mode runs; None if it is not in this mode.  Raises ConfigError."""
    if not store.enable_dleger_commit_log:
        return None
    if broker.enable_controller_mode:
        raise ConfigError("enableDLegerCommitLog: enableControllerMode is also true: choose one of them")
    try:
        members = parse_members(store.dleger_peers)
        check_members(members, store.dleger_self_id)
    except ConfigError as error:
        raise ConfigError(f"dLegerPeers, dLegerSelfId: {error}") from None
    if len(members) < _LEAST_MEMBERS:
        raise ConfigError(
            f"dLegerPeers: {len(members)} brokers cannot lose one and keep a majority: name at least {_LEAST_MEMBERS}"
        )
    preferred = [one.strip() for one in store.preferred_leader_id.split(";") if one.strip()]
    unknown = [one for one in preferred if one not in {member.id for member in members}]
    if unknown:
        raise ConfigError(f"preferredLeaderId: {unknown[0]!r} is not in dLegerPeers")
    majority = len(members) // 2 + 1
    addresses = ";".join(f"{_host(member.host)}:{member.port}" for member in members)
    own = replace(
        broker,
        enable_controller_mode=True,
        controller_addr=addresses,
        broker_role=BrokerRole.SYNC_MASTER,
        broker_election_priority=_FIRST if store.dleger_self_id in preferred else broker.broker_election_priority,
    )
    kept = replace(
        store,
        in_sync_replicas=majority,
        min_in_sync_replicas=majority,
        all_ack_in_sync_state_set=False,
        enable_auto_in_sync_replicas=False,
    )
    return DLedgerMode(own, kept, _controller(broker, store))


def _controller(broker: BrokerConfig, store: StoreConfig) -> ControllerConfig:
    shared: dict[str, Any] = {one.name: getattr(broker, one.name) for settings in _SHARED for one in fields(settings)}
    account = server_account(broker)
    if account is not None:
        # With ACL 1.0 too, the members prove themselves to each other, and brokers answer signed questions only.
        names = {"accessKey": account.access_key, "secretKey": account.secret_key}
        shared["inner_client_authentication_credentials"] = json.dumps(
            names | {"securityToken": account.security_token}
        )
    return ControllerConfig(
        **shared,
        bind_address=broker.bind_address,
        controller_dleger_group=store.dleger_group or broker.broker_name,
        controller_dleger_peers=store.dleger_peers,
        controller_dleger_self_id=store.dleger_self_id,
        controller_raft_port_offset=store.dleger_raft_port_offset,
        controller_store_path=store.store_path_root_dir / "dledgerController",
        ha_secret_file=store.ha_secret_file,
    )


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
