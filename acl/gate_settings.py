"""What the gate of a port can be told, beside who its users are.  Keys of Sprocket's own."""

from dataclasses import dataclass

from sprocket.common.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class GateSettings:
    """The part of a server's configuration that says what becomes of refused requests."""

    auth_failures_per_second: int = int_setting(
        "authFailuresPerSecond",
        10,
        "Wrong signatures that one address may go on sending, once authFailuresBurst is spent; 0 sets no limit.",
        minimum=0,
        maximum=1_000_000,
    )
    auth_failures_burst: int = int_setting(
        "authFailuresBurst",
        100,
        "Wrong signatures that one address may send at once before it is asked to wait.",
        minimum=1,
        maximum=1_000_000,
    )
    audit_allowed: bool = bool_setting(
        "auditAllowed", False, "Write audit lines also for requests that are served, not for refused ones alone."
    )
    audit_lines_per_second: int = int_setting(
        "auditLinesPerSecond",
        100,
        "Audit lines of one second; of more their count alone is written.",
        minimum=1,
        maximum=1_000_000,
    )
