"""Log of a server process: where its lines go, their form, and levels that follow updates of the configuration."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from sprocket.common.clock import Clock, SystemClock
from sprocket.common.logs.json_lines import JsonFormatter
from sprocket.common.logs.levels import LogLevels, parse_levels
from sprocket.common.logs.line_format import timed_formatter
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.logs.rolling_file import RollingFileHandler, RollingLimits
from sprocket.common.logs.settings import LogSettings

logger = logging.getLogger(__name__)


class ServerLog:
    """Log of this process as `settings` say; `level` is that of ``--log-level``."""

    def __init__(self, settings: LogSettings, level: str, clock: Clock | None = None) -> None:
        formatter = JsonFormatter() if settings.log_json else timed_formatter()
        stderr = logging.StreamHandler(sys.stderr)
        stderr.setFormatter(formatter)
        self._levels = LogLevels(logging.getLevelNamesMapping()[level.upper()])
        self._levels.apply(parse_levels(settings.log_levels))
        handler: logging.Handler = stderr
        if settings.log_file:
            limits = RollingLimits(settings.log_file_max_bytes, settings.log_total_max_bytes, settings.log_roll_hours)
            rolling = RollingFileHandler(Path(settings.log_file), limits, clock or SystemClock(), stderr)
            rolling.setFormatter(formatter)
            rolling.open()
            handler = rolling
        logging.getLogger().addHandler(handler)

    def follow(self, current: Callable[[], LogSettings]) -> Callable[[dict[str, str]], None]:
        """Return a listener for updates of a configuration, which applies the levels of `current`."""

        def changed(keys: dict[str, str]) -> None:
            if "logLevels" in keys:
                text = current().log_levels
                # Before it takes effect: the new levels might leave out the line.
                peer_lines.warning(logger, "", "event=log_levels_changed levels=%r", text)
                self._levels.apply(parse_levels(text))

        return changed
