"""What a broker can be told about requests that wait for too long.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, `NettyServerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.setting_fields import int_setting as _int


@dataclass(frozen=True)
class OverloadSettings:
    """How long requests may wait before they are read, and where."""

    wait_time_mills_in_send_queue: int = _int(
        "waitTimeMillsInSendQueue",
        200,
        "With brokerFastFailureEnable: sends that waited longer before they were read are refused as SYSTEM_BUSY.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    wait_time_mills_in_pull_queue: int = _int(
        "waitTimeMillsInPullQueue",
        5_000,
        "With brokerFastFailureEnable: pulls that waited longer before they were read are refused as SYSTEM_BUSY.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    server_socket_rcv_buf_size: int = _int(
        "serverSocketRcvBufSize",
        0,
        "Receive buffer of a connection (SO_RCVBUF).  0 leaves it to the system; the broker then makes it small while "
        "it refuses requests.",
        minimum=0,
        unit="bytes",
        maximum=2**30,
    )
    server_socket_snd_buf_size: int = _int(
        "serverSocketSndBufSize",
        0,
        "Send buffer of a connection (SO_SNDBUF).  0 leaves it to the system.",
        minimum=0,
        unit="bytes",
        maximum=2**30,
    )
