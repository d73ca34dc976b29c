"""Settings of overload: what happens to requests that wait for too long.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import int_setting


@dataclass(frozen=True)
class OverloadSettings:
    """Max wait of requests before they are read."""

    wait_time_mills_in_send_queue: int = int_setting(
        200,
        "With brokerFastFailureEnable: max wait of a send before it is read; later ones are refused as SYSTEM_BUSY.",
        1,
        "ms",
        mutable=True,
    )
    wait_time_mills_in_pull_queue: int = int_setting(
        5_000,
        "With brokerFastFailureEnable: max wait of a pull before it is read; later ones are refused as SYSTEM_BUSY.",
        1,
        "ms",
        mutable=True,
    )
