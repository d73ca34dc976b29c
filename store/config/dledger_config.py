"""Settings of DLedger mode: the brokers of a group elect their master among themselves, without controller processes.

Source of names and defaults: RocketMQ 5.3.3, `MessageStoreConfig`.  `store.config.store_config.StoreConfig` inherits
them.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting


@dataclass(frozen=True, kw_only=True)
class DLedgerConfig:
    """Settings of DLedger mode."""

    enable_dleger_commit_log: bool = bool_setting(
        False,
        "DLedger mode: at least three brokers of a group elect their master, and a majority has each acknowledged "
        "message. The files are those of every other mode.",
        key="enableDLegerCommitLog",
    )
    dleger_group: str = text_setting("", "DLedger mode: name of the group; brokerName if empty.", key="dLegerGroup")
    dleger_peers: str = text_setting(
        "", "DLedger mode: all brokers of the group: n0-host:port;n1-host:port;n2-host:port.", key="dLegerPeers"
    )
    dleger_self_id: str = text_setting("", "DLedger mode: id of this broker in dLegerPeers.", key="dLegerSelfId")
    preferred_leader_id: str = text_setting(
        "",
        "DLedger mode: ids in dLegerPeers, with `;` between them, that become the master before others of equal logs.",
    )
    dleger_raft_port_offset: int = int_setting(
        1000,
        "DLedger mode: distance from each port in dLegerPeers to the port for Raft; the same for all of them.",
        1,
        maximum=60_000,
        key="dLegerRaftPortOffset",
    )
