"""Settings of a server's log, which all servers declare by inheriting them.

RocketMQ configures its log in files of Logback (``rmq.broker.logback.xml``), so it has no keys for this.  The defaults
are near those of its files: a file of the broker rolls at 128 MB, and 10 rolled files are kept.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.common.logs.levels import parse_levels

_MIB = 1024 * 1024


@dataclass(frozen=True)
class LogSettings:
    """Where log lines go, in what form, and from which level on."""

    log_levels: str = text_setting(
        "",
        "Levels of components, as in `broker.pop=DEBUG,ha=WARNING`; `root` is all others. The empty text means "
        "that of `--log-level` for all.",
        mutable=True,
    )
    log_file: str = text_setting("", "File of the log; if empty, the log goes to stderr.")
    log_file_max_bytes: int = int_setting(128 * _MIB, "The log file is rolled before it gets larger.", _MIB, "bytes")
    log_total_max_bytes: int = int_setting(
        1280 * _MIB,
        "Max size of the log file and its rolled files together; the oldest are deleted.",
        2 * _MIB,
        "bytes",
    )
    log_roll_hours: int = int_setting(
        24,
        "The log file is rolled when a period of this length ends (24: at midnight UTC); 0 means by size alone.",
        0,
        "h",
        8_760,
    )
    log_json: bool = bool_setting(False, "Write each record as one line of JSON.")

    def check_log(self) -> None:
        """Raise ConfigError for an invalid text of levels, and for limits that contradict each other."""
        parse_levels(self.log_levels)
        if self.log_total_max_bytes < 2 * self.log_file_max_bytes:
            raise ConfigError(
                f"logTotalMaxBytes = {self.log_total_max_bytes}: less than two files of logFileMaxBytes = "
                f"{self.log_file_max_bytes}; raise it, or lower logFileMaxBytes"
            )
