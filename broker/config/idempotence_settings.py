"""Settings of the window in which a broker recognises a message that it already has.  Not in RocketMQ."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import int_setting as _int


@dataclass(frozen=True)
class IdempotenceSettings:
    """Bounds of the window: time and number of ids."""

    idempotence_window_ms: int = _int(
        "idempotenceWindowMs",
        600_000,
        "Time for which a broker recognises the id of an idempotent message, see "
        "[client.md](client.md#idempotent-producer); 0: it recognises none; not in RocketMQ.",
        minimum=0,
        maximum=86_400_000,
        unit="ms",
        mutable=True,
    )
    idempotence_max_ids: int = _int(
        "idempotenceMaxIds",
        100_000,
        "Max ids that a broker recognises; with more in idempotenceWindowMs the oldest are forgotten early; each takes "
        "about 0.5 KiB of memory; not in RocketMQ.",
        minimum=1,
        maximum=10_000_000,
        mutable=True,
    )
