"""Levels of components, which may change while a server runs.

A component is the name of a logger, or a prefix of names: ``broker.pop`` covers the modules of that package.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

from sprocket.common.errors import ConfigError

ROOT: Final = "root"
# Its lines are evidence: the right to change levels must not include the right to silence it.
AUDIT: Final = "sprocket.audit"
# A logger, once made, lives as long as the process.
MAX_LEVELS: Final = 64
MAX_TEXT_CHARS: Final = 4_096
_LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40}
# First parts of logger names: our packages, and libraries that write to a server's log.
_PACKAGES: Final = (
    "acl", "broker", "controller", "dashboard", "ha", "namesrv", "proxy", "sprocket", "sprocket_cli", "store",
    "aiohttp", "asyncio", "grpc", "pysyncobj",
)  # fmt: skip
_COMPONENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")


def parse_levels(text: str) -> dict[str, int]:
    """Return the level of each component that `text` names: ``broker.pop=DEBUG,ha=WARNING``.

    Raises ConfigError that names the part it refuses.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise ConfigError(f"logLevels: {len(text)} characters, the limit is {MAX_TEXT_CHARS}")
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > MAX_LEVELS:
        raise ConfigError(f"logLevels: {len(parts)} components, the limit is {MAX_LEVELS}; name a common prefix")
    levels: dict[str, int] = {}
    for part in parts:
        component, equals, name = (word.strip() for word in part.partition("="))
        level = _LEVELS.get(name.upper())
        if not equals or level is None:
            raise ConfigError(
                f"logLevels: {part!r}: allowed is component=LEVEL, with level {', '.join(_LEVELS)}, "
                "as in broker.pop=DEBUG,ha=WARNING"
            )
        _check_component(component)
        if component in levels:
            raise ConfigError(f"logLevels: {component} stands twice; name it once")
        levels[component] = level
    return levels


def _check_component(component: str) -> None:
    if component == AUDIT:
        raise ConfigError(f"logLevels: {AUDIT} always has the level of the start; auditAllowed adds what is allowed")
    known = component == ROOT or component.partition(".")[0] in _PACKAGES
    if not known or not _COMPONENT.fullmatch(component):
        raise ConfigError(
            f"logLevels: {component!r}: no such component; allowed is {ROOT}, or the name of a logger as lines of the "
            f"log show it, or its beginning: {', '.join(_PACKAGES)}, broker.pop"
        )


class LogLevels:
    """Levels in force in this process.  `start` is the root's level where no text says otherwise."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._set: set[str] = set()
        logging.getLogger(AUDIT).setLevel(start)
        logging.getLogger().setLevel(start)

    def apply(self, levels: Mapping[str, int]) -> None:
        """Give these components their levels; others get the level of the nearest named prefix, or the root's."""
        for component in self._set - levels.keys():
            logging.getLogger(component).setLevel(logging.NOTSET)
        logging.getLogger().setLevel(levels.get(ROOT, self._start))
        self._set = set(levels) - {ROOT}
        for component in self._set:
            logging.getLogger(component).setLevel(levels[component])
