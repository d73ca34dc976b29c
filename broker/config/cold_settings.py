"""What a broker can be told about how fast groups may read old messages.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`.
"""

from dataclasses import dataclass

from sprocket.common.setting_fields import bool_setting as _bool
from sprocket.common.setting_fields import int_setting as _int


@dataclass(frozen=True)
class ColdSettings:
    """Thresholds of reads of cold messages; they count with coldDataFlowControlEnable."""

    cg_cold_read_threshold: int = _int(
        "cgColdReadThreshold",
        3 * 1024 * 1024,
        "Cold bytes that a group may pull in 5 s, unless an operator set a threshold for the group.",
        minimum=0,
        unit="bytes",
        mutable=True,
    )
    global_cold_read_threshold: int = _int(
        "globalColdReadThreshold",
        100 * 1024 * 1024,
        "Cold bytes that all groups together may pull in 5 s.",
        minimum=0,
        unit="bytes",
        mutable=True,
    )
    cold_ctr_strategy_enable: bool = _bool(
        "coldCtrStrategyEnable",
        False,
        "Adapt the thresholds of groups to what all groups read.",
        mutable=True,
    )
    use_pid_cold_ctr_strategy: bool = _bool(
        "usePIDColdCtrStrategy",
        True,
        "With coldCtrStrategyEnable: adapt by a PID controller; if false raise a group's threshold whenever it is met.",
        mutable=True,
    )
