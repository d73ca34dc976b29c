"""What two ends of replication that are both Sprocket can be told; RocketMQ has none of these keys.

`store.config.ha_config.HaConfig` inherits them.
"""

from dataclasses import dataclass
from typing import Final

from sprocket.common.setting_fields import bool_setting, int_setting, text_setting

_MAX_INT: Final = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """A session's part of a store's configuration."""

    ha_session_enable: bool = bool_setting(
        "haSessionEnable",
        True,
        "Between two Sprocket brokers: frames with CRC and epoch, authentication, tables in the log's order. Off, or "
        "with RocketMQ on the other side, its two messages.",
    )
    ha_secret_file: str = text_setting(
        "haSecretFile",
        "",
        "File with the secret by which master and slave know each other, the same at both; empty: with access control "
        "the account with which brokers sign (innerClientAuthenticationCredentials, conf/tools.yml), else nobody "
        "proves anything.",
    )
    ha_allow_plain_peers: bool = bool_setting(
        "haAllowPlainPeers",
        False,
        "With haSecretFile or access control: masters and slaves that speak RocketMQ's two messages, which prove "
        "nothing, are welcome. Requests are then signed for any address that a name server calls a broker.",
    )
    ha_allow_cleartext: bool = bool_setting(
        "haAllowCleartext",
        False,
        "Where TLS is wanted (a master's tls.server.mode = enforcing, a slave's tls.enable): the log may go in clear "
        "all the same, to slaves and from masters of RocketMQ, which speak no TLS on haListenPort.",
    )
    ha_tail_recovery_wait: int = int_setting(
        "haTailRecoveryWait",
        10_000,
        "SYNC_MASTER, after a stop that was not clean: how long nothing is taken, until a slave has told whether it "
        "has more of the log; with minInSyncReplicas above 1 after each stop, until a slave has all of the log. With "
        "an empty store: until no slave can hold data; longer while name servers know a member that has not come. 0 "
        "for not at all.",
        0,
        "ms",
        _MAX_INT,
    )
    sync_from_last_file: bool = bool_setting(
        "syncFromLastFile",
        False,
        "An empty slave with a session begins with the last segment, not with the first that its master has. Slaves "
        "without a session always begin with the last, as in RocketMQ.",
    )
