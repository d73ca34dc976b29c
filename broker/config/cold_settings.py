"""Settings of the flow control of cold reads: how fast groups may read old messages.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class ColdSettings:
    """Thresholds of cold reads; effective with coldDataFlowControlEnable."""

    cg_cold_read_threshold: int = int_setting(
        3 * 1024 * 1024,
        "Max cold bytes that a group may pull in 5 s; an operator can set another threshold for a group.",
        0,
        "bytes",
        mutable=True,
    )
    global_cold_read_threshold: int = int_setting(
        100 * 1024 * 1024, "Max cold bytes that all groups together may pull in 5 s.", 0, "bytes", mutable=True
    )
    cold_ctr_strategy_enable: bool = bool_setting(
        False, "Adapt the thresholds of groups to the total of cold reads.", mutable=True
    )
    use_pid_cold_ctr_strategy: bool = bool_setting(
        True,
        "With coldCtrStrategyEnable: adapt by a PID controller; if false, raise a threshold whenever it is reached.",
        mutable=True,
        key="usePIDColdCtrStrategy",
    )
