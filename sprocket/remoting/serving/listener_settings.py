"""Settings of a listener, which the configuration of every server declares by inheriting them.

A new key is declared here and read in `RemotingServer`; brokers, name servers and controllers then have it.
Source of names and defaults: RocketMQ 5.3.3, `NettyServerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import int_setting, text_setting


@dataclass(frozen=True)
class ConnectionSettings:
    """Address, buffers and limits of one listener, but for the port."""

    bind_address: str = text_setting("0.0.0.0", "Address to listen on; 0.0.0.0 and :: mean all, of IPv4 and IPv6.")
    server_channel_max_idle_time_seconds: int = int_setting(
        120, "Idle connections are closed after this time.", 1, "s", mutable=True
    )
    server_socket_rcv_buf_size: int = int_setting(
        0,
        "Receive buffer of a connection (SO_RCVBUF); 0 means the system's default, which a server reduces while it "
        "refuses requests.",
        0,
        "bytes",
        2**30,
    )
    server_socket_snd_buf_size: int = int_setting(
        0, "Send buffer of a connection (SO_SNDBUF); 0 means the system's default.", 0, "bytes", 2**30
    )


@dataclass(frozen=True)
class ListenerSettings(ConnectionSettings):
    """Settings of a listener whose port is a key of its own."""

    listen_port: int = int_setting(0, "Port for clients; 0 means a free port.", 0, maximum=65535)
