"""Settings of a port's gate, besides its users.  The keys are Sprocket's own."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class GateSettings:
    """Part of a server's configuration that is about refused requests."""

    auth_failures_per_second: int = int_setting(
        10,
        "Wrong signatures per second that one address may send after authFailuresBurst is spent; 0 sets no limit.",
        0,
        maximum=1_000_000,
    )
    auth_failures_burst: int = int_setting(
        100, "Wrong signatures that one address may send at once before it must wait.", 1, maximum=1_000_000
    )
    audit_allowed: bool = bool_setting(
        False, "Write audit lines also for requests that are served, not only for refused ones."
    )
    audit_lines_per_second: int = int_setting(
        100, "Audit lines per second; further ones are only counted.", 1, maximum=1_000_000
    )
