"""A broker that records how long its event loop is busy without a pause, and with what.

    python -m benchmarks.tenants.probe FILE standalone ...

It runs `sprocket` with the other arguments, and writes what it saw to FILE at its end; `read` reads it.  A turn is all
that the loop does between two looks at its sockets: a request that comes meanwhile waits for at most its rest, and then
for what is served before it in the next turn.  Turns from `MIN_TURN_S` on are kept, each with its causes.
"""

import asyncio
import atexit
import gc
import json
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

_PAUSE_S: Final = 0.0001
MIN_TURN_S: Final = 0.001
_CODE: Final = re.compile(rb'"code":(\d+)')
_HEAD_BYTES: Final = 2048


class Period(NamedTuple):
    """Turn: when it began (monotonic), its length, what of that the process had no processor, and the causes, s.

    `cpu_s` is processor time, `others_s` that of the process's other threads.  The rest of `wall_s` is neither: the
    loop waited for the disk or for a thread that held the interpreter's lock, or a hypervisor took the processor away.
    """

    began_s: float
    wall_s: float
    cpu_s: float
    delayed_s: float
    others_s: float
    causes: dict[str, float]


class Recorder:
    """What the loop does, in the order in which it does it."""

    def __init__(self) -> None:
        self.periods: list[Period] = []
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        # Of each read of the good tenant: when, and the processor time that the loop can have spent since it came until
        # it was served.
        self.good: list[tuple[float, float]] = []
        self._began_s = self._ended_s = 0.0
        self._cpu_began_s = self._cpu_ended_s = 0.0
        self._delay_began_s = self._delay_ended_s = 0.0
        self._all_began_s = self._all_ended_s = 0.0
        self._causes: dict[str, float] = defaultdict(float)
        self._is_inside = self._is_marked = False
        self._before_s = 0.0  # `cpu_s` of the turn before, if this one followed at once
        self.mark_later: Callable[[Callable[[], None]], object] = lambda mark: None  # before the next look

    def run(self, cause: Callable[[], str], work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work of the loop and record it."""
        if self._is_inside:
            return work(*arguments)
        began_s = time.monotonic()
        if not self._is_marked:
            self._is_marked = True
            self.mark_later(self._mark)
            if began_s - self._ended_s > _PAUSE_S:
                self._before_s = 0.0
            self._began_s, self._cpu_began_s, self._delay_began_s = began_s, time.thread_time(), self._delay_s()
            self._all_began_s = time.process_time()
        self._is_inside = True
        try:
            return work(*arguments)
        finally:
            self._is_inside = False
            self._ended_s, self._cpu_ended_s, self._delay_ended_s = (
                time.monotonic(),
                time.thread_time(),
                self._delay_s(),
            )
            self._all_ended_s = time.process_time()
            name = cause()
            self._causes[name] += self._ended_s - began_s
            if name.startswith("good"):
                self.good.append((began_s, self._before_s + self._cpu_ended_s - self._cpu_began_s))

    def _delay_s(self) -> float:
        """Return for how long the loop's thread was ready and had no processor so far."""
        return int(os.pread(self._schedule, 100, 0).split()[1]) / 1e9

    def _mark(self) -> None:
        """End the turn."""
        self._is_marked = False
        wall_s = self._ended_s - self._began_s
        cpu_s = self._before_s = self._cpu_ended_s - self._cpu_began_s
        if wall_s >= MIN_TURN_S:
            delayed_s = self._delay_ended_s - self._delay_began_s
            others_s = self._all_ended_s - self._all_began_s - cpu_s
            self.periods.append(Period(self._began_s, wall_s, cpu_s, delayed_s, others_s, dict(self._causes)))
        self._causes.clear()

    def write(self, file: Path) -> None:
        """Write all that was kept."""
        file.write_text(json.dumps({"periods": self.periods, "good": self.good}))


def read(file: Path) -> tuple[list[Period], list[tuple[float, float]]]:
    """Return the periods of a file, and the reads of the good tenant: when, and how long after the period's begin."""
    content = json.loads(file.read_text())
    return [Period(*one) for one in content["periods"]], [(at, took) for at, took in content["good"]]


def _name(data: bytes) -> str:
    head = data[:_HEAD_BYTES]
    code = _CODE.search(head)
    tenant = "evil" if b"evil" in head else "good" if b"good" in head else "other"
    return f"{tenant} read {code[1].decode() if code else '?'}"


def install(recorder: Recorder) -> None:
    """Let the loops of this process, and the connections of its servers, be recorded."""
    import uvloop

    from sprocket.remoting.channel import RemotingChannel

    received = RemotingChannel.data_received

    def data_received(channel: RemotingChannel, data: bytes) -> None:
        recorder.run(lambda: _name(data), received, channel, data)

    RemotingChannel.data_received = data_received  # type: ignore[method-assign]

    def named(callback: Any) -> Callable[[], str]:
        return lambda: getattr(callback, "__qualname__", None) or type(callback).__name__

    class Loop(uvloop.Loop):
        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
            return super().call_soon(recorder.run, named(callback), callback, *args, context=context)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
            return super().call_soon_threadsafe(recorder.run, named(callback), callback, *args, context=context)

        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
            return super().call_later(delay, recorder.run, named(callback), callback, *args, context=context)

        def mark_later(self, mark: Callable[[], None]) -> None:
            super().call_soon(mark)

    def begun() -> Loop:
        loop = Loop()
        recorder.mark_later = loop.mark_later
        return loop

    run = uvloop.run
    uvloop.run = lambda main: run(main, loop_factory=begun)
    began_s = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.monotonic()
        elif (took_s := time.monotonic() - began_s) > MIN_TURN_S:
            recorder.periods.append(Period(began_s, took_s, took_s, 0.0, 0.0, {f"gc {info['generation']}": took_s}))

    gc.callbacks.append(collected)


def main() -> None:
    """Run `sprocket`, recorded."""
    from sprocket_cli.programs import sprocket

    recorder, file = Recorder(), Path(sys.argv.pop(1))
    install(recorder)
    atexit.register(recorder.write, file)
    sprocket()


if __name__ == "__main__":
    main()
