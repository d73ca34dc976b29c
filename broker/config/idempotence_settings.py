"""Settings of the window in which a broker recognises a message that it already has.  Not in RocketMQ."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import int_setting


@dataclass(frozen=True)
class IdempotenceSettings:
    """Bounds of the window: time and number of ids."""

    idempotence_window_ms: int = int_setting(
        600_000,
        "Time for which a broker recognises the id of an idempotent message, see "
        "[client.md](client.md#idempotent-producer); 0: it recognises none; not in RocketMQ.",
        0,
        "ms",
        86_400_000,
        mutable=True,
    )
    idempotence_max_ids: int = int_setting(
        100_000,
        "Max ids that a broker recognises; with more in idempotenceWindowMs the oldest are forgotten early; each "
        "takes about 0.5 KiB of memory; not in RocketMQ.",
        1,
        maximum=10_000_000,
        mutable=True,
    )
