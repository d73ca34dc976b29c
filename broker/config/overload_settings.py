"""Settings of overload: what happens to requests that wait for too long.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, `NettyServerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.setting_fields import int_setting as _int


@dataclass(frozen=True)
class OverloadSettings:
    """Max wait of requests before they are read, and sizes of the socket buffers in which they wait."""

    wait_time_mills_in_send_queue: int = _int(
        "waitTimeMillsInSendQueue",
        200,
        "With brokerFastFailureEnable: max wait of a send before it is read; later ones are refused as SYSTEM_BUSY.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    wait_time_mills_in_pull_queue: int = _int(
        "waitTimeMillsInPullQueue",
        5_000,
        "With brokerFastFailureEnable: max wait of a pull before it is read; later ones are refused as SYSTEM_BUSY.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    server_socket_rcv_buf_size: int = _int(
        "serverSocketRcvBufSize",
        0,
        "Receive buffer of a connection (SO_RCVBUF); 0 means the system's default, which the broker reduces while it "
        "refuses requests.",
        minimum=0,
        unit="bytes",
        maximum=2**30,
    )
    server_socket_snd_buf_size: int = _int(
        "serverSocketSndBufSize",
        0,
        "Send buffer of a connection (SO_SNDBUF); 0 means the system's default.",
        minimum=0,
        unit="bytes",
        maximum=2**30,
    )
