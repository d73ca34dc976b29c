"""Settings of replication between two Sprocket brokers; RocketMQ has none of these keys.

`store.config.ha_config.HaConfig` inherits them.
"""

from dataclasses import dataclass
from typing import Final

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting

_MAX_INT: Final = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """Settings of a store for replication sessions."""

    ha_session_enable: bool = bool_setting(
        True,
        "Two Sprocket brokers use frames with CRC and epoch, authentication, and tables in the log's order. If "
        "off, or with a broker of RocketMQ, they use RocketMQ's two messages.",
    )
    ha_secret_file: str = text_setting(
        "",
        "File with the secret by which master and slave authenticate each other, the same on both. If empty, the "
        "brokers' account of access control serves (innerClientAuthenticationCredentials, conf/tools.yml); without "
        "access control there is no authentication.",
    )
    ha_allow_plain_peers: bool = bool_setting(
        False,
        "With haSecretFile or access control: accept masters and slaves with RocketMQ's two messages, which have "
        "no authentication. Requests are then signed for any address that a name server calls a broker.",
    )
    ha_allow_cleartext: bool = bool_setting(
        False,
        "With TLS (a master's tls.server.mode = enforcing, a slave's tls.enable): still allow the log in clear "
        "text to slaves and from masters of RocketMQ, which have no TLS on haListenPort.",
    )
    ha_tail_recovery_wait: int = int_setting(
        10_000,
        "SYNC_MASTER, after an unclean stop: how long sends are refused until a slave reports whether it has more "
        "of the log. With minInSyncReplicas above 1, after every stop until a slave has the whole log. With an "
        "empty store, until no slave can have data; longer while name servers know a member that has not "
        "connected. 0: no wait.",
        0,
        "ms",
        _MAX_INT,
    )
    sync_from_last_file: bool = bool_setting(
        False,
        "An empty slave with a session begins with its master's last segment, not the first. Slaves without a "
        "session always begin with the last, as in RocketMQ.",
    )
