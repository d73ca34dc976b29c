"""Failpoints: named places in the code where a test makes the process die, wait or get a system error.

A module declares a point and calls it at the place::

    _BEFORE_SYNC: Final = failpoint("group_commit.before_sync")
    ...
    _BEFORE_SYNC()

Nothing happens there unless the environment variable SPROCKET_FAILPOINTS armed the point when a server started, for
example ``appender.after_log_write=kill@3;group_commit.before_sync=pause:200;disk.sync=error:EIO@2``:

- ``kill``: SIGKILL to the process itself;
- ``exit``: the process ends at once with status 99, nothing is flushed or closed;
- ``pause:200``: the thread waits 200 ms;
- ``error:EIO``: the place raises OSError with this number; only at a place that handles it (`takes_error`).

``@3`` acts only at the third call of the point, ``@3+`` at the third and all later ones; without it every call acts.  A
server that starts with a point armed warns of it in its log; an unknown point or action ends the start.
Only servers read the variable.  An unarmed point costs a call and a test of one attribute, so it may be used in code
that runs once per batch, but not once per message.
"""

import difflib
import errno
import itertools
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from sprocket.common.errors import ConfigError, InvariantError

VARIABLE: Final = "SPROCKET_FAILPOINTS"
EXIT_STATUS: Final = 99
_log = logging.getLogger(__name__)
_points: dict[str, "Failpoint"] = {}


class Failpoint:
    """One place.  `takes_error` means that the place handles an OSError like one of the system's."""

    __slots__ = ("_action", "name", "takes_error")

    def __init__(self, name: str, takes_error: bool) -> None:
        self.name = name
        self.takes_error = takes_error
        self._action: Callable[[], None] | None = None

    def reach(self) -> None:
        """Run the action of an armed point."""
        if self._action is not None:
            self._action()

    def arm(self, action: Callable[[], None] | None) -> None:
        """Run `action` at each `reach` from now on; None disarms."""
        self._action = action


def failpoint(name: str, *, takes_error: bool = False) -> Callable[[], None]:
    """Declare a point with the unique name ``file.place``.  Return the function that the place calls."""
    if name in _points:
        raise InvariantError(f"failpoint {name} is declared twice")
    point = _points[name] = Failpoint(name, takes_error)
    # A bound method: calling it is twice as fast as calling an object that has `__call__`.
    return point.reach


def declared() -> dict[str, Failpoint]:
    """Return every point of the modules that are imported, by name."""
    return dict(_points)


def arm(text: str | None) -> None:
    """Arm the points in `text`, the variable's value, and disarm all others.

    Call it after all modules with points are imported.  Raises `ConfigError`, with nothing armed, for an invalid clause
    or an unknown point.
    """
    actions = [_parse(clause.strip()) for clause in (text or "").split(";") if clause.strip()]
    for point in _points.values():
        point.arm(None)
    for point, action, clause in actions:
        _log.warning("event=failpoint_armed clause=%s note=%r", clause, f"for tests only: {VARIABLE} is set")
        point.arm(action)


def _parse(clause: str) -> tuple[Failpoint, Callable[[], None], str]:
    name, _, rest = clause.partition("=")
    verb, _, count = rest.partition("@")
    verb, _, argument = verb.partition(":")
    point = _points.get(name)
    if point is None:
        raise ConfigError(f"{VARIABLE}: there is no failpoint {name!r}{_nearest(name)}")
    number = count.removesuffix("+")
    if count and (not number.isdigit() or int(number) == 0):
        raise ConfigError(f"{VARIABLE}: {clause!r}: after @ comes a number from 1 on")
    action = _action(point, verb, argument, clause)
    if not count:
        return point, action, clause
    return point, _counted(int(number), math.inf if count.endswith("+") else int(number), action), clause


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, _points, 1, 0.0)
    return f"; the nearest is {near[0]!r}" if near else ""


def _action(point: Failpoint, verb: str, argument: str, clause: str) -> Callable[[], None]:
    if verb == "kill" and not argument:
        return lambda: _die(point.name)
    if verb == "exit" and not argument:
        return lambda: os._exit(EXIT_STATUS)
    if verb == "pause" and argument.isdigit():
        return lambda: time.sleep(int(argument) / 1000)
    if verb == "error" and isinstance(number := getattr(errno, argument, None), int):
        if not point.takes_error:
            able = ", ".join(sorted(other.name for other in _points.values() if other.takes_error))
            raise ConfigError(f"{VARIABLE}: {clause!r}: no error of the system can happen there, but at: {able}")
        return lambda: _raise(number, point.name)
    raise ConfigError(f"{VARIABLE}: {clause!r}: allowed are kill, exit, pause:<ms> and error:<name of errno>")


def _counted(first: int, last: float, action: Callable[[], None]) -> Callable[[], None]:
    calls = itertools.count(1)  # `next` of it is one step for all threads

    def act() -> None:
        if first <= next(calls) <= last:
            action()

    return act


def _die(name: str) -> None:
    # Without the log's lock and buffer: another thread may hold them, and they are lost with the process.
    os.write(2, f"event=failpoint name={name} action=kill\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(number: int, name: str) -> None:
    raise OSError(number, f"{os.strerror(number)} (failpoint {name})")
