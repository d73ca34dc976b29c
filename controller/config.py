"""Configuration of a controller.

Source of names and defaults: RocketMQ 5.3.3, `ControllerConfig`, `NettyServerConfig`, `AuthConfig`.  The port is that
of the own peer in controllerDLegerPeers, as in RocketMQ, where the same port serves DLedger.  Here the consensus has a
port of its own, a fixed distance above.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from ha.raft.consensus import Member
from ha.raft.members import check_members, parse_members
from sprocket.common.config.setting_fields import bool_setting, int_setting, made_setting, setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.common.logs.settings import LogSettings
from sprocket.metrics.health import HealthSettings
from sprocket.metrics.settings import MetricsSettings
from sprocket.remoting.serving.listener_settings import ConnectionSettings

_PEERS = "controllerDLegerPeers"


@dataclass(frozen=True)
class ControllerConfig(ConnectionSettings, AuthSettings, GateSettings, MetricsSettings, HealthSettings, LogSettings):
    """Configuration of a controller."""

    controller_type: str = setting(
        "DLedger",
        "Accepted; both mean the same here. Controllers do not form a group with RocketMQ's.",
        allowed=("DLedger", "jRaft"),
    )
    controller_dleger_group: str = text_setting(
        "", "Name of the group of controllers; the same for all of them.", key="controllerDLegerGroup"
    )
    controller_dleger_peers: str = text_setting(
        "", "All controllers with the addresses at which brokers reach them: n0-host:port;n1-host:port.", key=_PEERS
    )
    controller_dleger_self_id: str = text_setting(
        "", "Id of this controller in controllerDLegerPeers; its port is listened on.", key="controllerDLegerSelfId"
    )
    controller_raft_port_offset: int = int_setting(
        1000,
        "Distance from each controller's port to its port for the other controllers; the same for all of them.",
        1,
        maximum=60_000,
    )
    ha_secret_file: str = text_setting(
        "",
        "File with the secret by which controllers authenticate each other, the same for all of them. If empty, "
        "innerClientAuthenticationCredentials serves; without both, anyone who reaches their ports may pose as one.",
    )
    controller_store_path: Path = made_setting(
        lambda: Path.home() / "DLedgerController", "Folder of the controller's files."
    )
    auth_config_path: str = text_setting(
        "", "Folder of auth.json, the users and policies; controllerStorePath if empty."
    )
    scan_not_active_broker_interval: int = int_setting(
        5_000, "Interval of the scan for silent brokers.", 1, "ms", mutable=True
    )
    scan_inactive_master_interval: int = int_setting(
        5_000,
        "Interval of the scan for groups whose master is lost while another broker of the group is alive.",
        1,
        "ms",
        mutable=True,
    )
    elect_master_max_retry_count: int = int_setting(
        3, "Attempts of one election that the controller starts.", 1, maximum=100, mutable=True
    )
    enable_elect_unclean_master: bool = bool_setting(
        False, "Elect a replica that is not in sync if none in sync is alive: what it lacks is lost.", mutable=True
    )
    process_read_event: bool = bool_setting(
        False,
        "Put reads into the log, too.  Without it, a majority confirms the leader before each read; both are "
        "linearizable.",
        mutable=True,
    )
    master_lease_millis: int = int_setting(
        1_200,
        "Length of the lease of a master; it acknowledges nothing without one, and no other is elected before its "
        "end. Brokers ask four times in this time. RocketMQ's brokers ask for none.",
        200,
        "ms",
        60_000,
        mutable=True,
    )
    notify_broker_role_changed: bool = bool_setting(
        True, "Notify the brokers of a group when it has a new master.", mutable=True
    )

    @property
    def peers(self) -> tuple[Member, ...]:
        """The controllers, with the addresses at which brokers reach them.  Raises ConfigError."""
        return parse_members(self.controller_dleger_peers)

    @property
    def own(self) -> Member:
        """This controller among `peers`.  Raises ConfigError."""
        return check_members(self.peers, self.controller_dleger_self_id)

    @property
    def raft_members(self) -> tuple[Member, ...]:
        """The controllers, with the addresses at which they reach each other.  Raises ConfigError."""
        offset = self.controller_raft_port_offset
        return tuple(replace(peer, port=peer.port + offset) for peer in self.peers)

    @property
    def auth_folder(self) -> Path:
        """Folder of users and policies."""
        return Path(self.auth_config_path) if self.auth_config_path else self.controller_store_path

    def check(self) -> None:
        """Raise ConfigError if the configuration is invalid."""
        self.check_auth()
        self.check_log()
        # A name server without a controller has none of these keys.
        if self.missing:
            return
        try:
            _ = self.own
        except ConfigError as error:
            raise ConfigError(f"{_PEERS}: {error}") from None
        taken = {(peer.host, peer.port): peer.id for peer in self.peers}
        for member in self.raft_members:
            if member.port > 65_535:
                raise ConfigError(f"controllerRaftPortOffset: the port of {member.id} would be {member.port}: lower it")
            other = taken.get((member.host, member.port))
            if other is not None:
                says = f"the port {member.port} of {member.id} for the other controllers is that of {other} for brokers"
                raise ConfigError(f"controllerRaftPortOffset: {says}: choose another distance")

    @property
    def missing(self) -> list[str]:
        """Keys that a controller cannot start without and that are empty."""
        required = {
            "controllerDLegerGroup": self.controller_dleger_group,
            _PEERS: self.controller_dleger_peers,
            "controllerDLegerSelfId": self.controller_dleger_self_id,
        }
        return [key for key, value in required.items() if not value.strip()]

    def require(self) -> None:
        """Raise ConfigError if a key is missing that a controller cannot start without."""
        if self.missing:
            jraft = "; jRaft's own keys are not read" if self.controller_type == "jRaft" else ""
            raise ConfigError(f"{self.missing[0]}: a controller needs {', '.join(self.missing)}{jraft}")
        if self.asks_for_users and not self.ha_secret_file and self.inner_credentials() is None:
            raise ConfigError(
                "haSecretFile: with authenticationEnabled the other controllers must prove who they are: set "
                "haSecretFile or innerClientAuthenticationCredentials"
            )
