"""The broker's window of ids, rebuilt from the log when the first idempotent message comes.

Ids are kept in the log alone.  So the window survives a crash, and a slave that becomes the master has it too.
A broker to which nobody sends idempotent messages reads nothing and remembers nothing.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from broker.config.live_config import LiveConfig
from broker.idempotence.id_window import FirstSend, IdWindow
from broker.idempotence.log_ids import ids_in
from broker.service import Service
from broker.turns import CallLater, Timer, run_in_turns
from sprocket.common.clock import Clock
from sprocket.common.errors import StoreBusy, StoreError
from sprocket.common.figures import Declared, Figure
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import SLICE_S, at_once
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

# Sends that wait until the window is rebuilt; further ones are refused, and their clients retry.
MAX_HELD: Final = 1024
# Of those that the log's failure refuses, so many are refused in one turn: each is a response, some 15 us.
_REFUSED_AT_ONCE: Final = 64
_STOPS: Final = "the broker stops; send the message again"
# Called once: with None when the window is complete, or with the error that prevents it.
Ready = Callable[[StoreError | None], None]


class KnownIds(Service):
    """Window of one term of a broker.  Lives in the event loop's thread.

    The log is read in steps of one batch of records, one step per turn of the loop, so other requests go on meanwhile.
    """

    def __init__(self, config: LiveConfig, log: MessageStore, clock: Clock, call_later: CallLater) -> None:
        self._config = config
        self._log = log
        self._clock = clock
        self._call_later = call_later
        self._window = self._new_window()
        self._is_complete = False
        self._held: deque[Ready] = deque()
        self._refused: deque[tuple[Ready, StoreError]] = deque()  # those of a read that failed
        self._is_reading = False  # or sends that waited for that have yet to go on
        self._is_releasing = False  # whether one of them goes on now
        self._timer: Timer | None = None
        self._next_offset = self._end_offset = 0  # what of the log is yet to be read
        self._began_s = 0.0
        self._is_stopped = False
        self.duplicates = 0

    @property
    def is_on(self) -> bool:
        """Whether this broker recognises ids."""
        return self._config.broker.idempotence_window_ms > 0

    @property
    def is_ready(self) -> bool:
        """Whether the window is complete, and nobody waits that came earlier; else `hold` sends."""
        return self._is_complete and self._is_current() and (self._is_releasing or not self._held)

    def _is_current(self) -> bool:
        broker = self._config.broker
        return self._window.window_ms == broker.idempotence_window_ms and (
            self._window.max_ids == broker.idempotence_max_ids
        )

    def hold(self, ready: Ready) -> None:
        """Call `ready` when the window is complete, in the order of the calls.  Raises StoreBusy if too many wait."""
        if self._is_stopped:
            raise StoreError(_STOPS)
        if len(self._held) + len(self._refused) >= MAX_HELD:
            raise StoreBusy("the broker still reads the ids of idempotent messages from its log; send it again later")
        self._held.append(ready)
        if not self._is_reading:
            self._begin()
        elif self._is_complete and self._is_current():
            # Each one that comes lets two go on, so fewer wait after each, however many come.
            self._go_on()
            self._go_on()

    # The window

    def find(self, topic: str, id_: str) -> FirstSend | None:
        """Return the message that came first with this id; None if there was none, or if its queue was deleted."""
        first = self._window.find(topic, id_, self._clock.wall_ms())
        if first is None:
            return None
        if not self._log.holds(first.topic, first.queue_id, first.queue_offset, first.physical_offset):
            self._window.remove(topic, id_)
            return None
        return first

    def add(self, topic: str, id_: str, send: FirstSend) -> None:
        """Add a message that was just stored."""
        self._window.add(topic, id_, send)

    def count_duplicates(self, messages: int) -> None:
        """Count messages that the broker already had."""
        self.duplicates += messages

    # Reading the log

    def _new_window(self) -> IdWindow:
        broker = self._config.broker
        return IdWindow(broker.idempotence_window_ms, broker.idempotence_max_ids)

    def _begin(self) -> None:
        """Start to read the log again.  No idempotent message is appended before the end is reached."""
        self._window, self._is_complete = self._new_window(), False
        self._is_reading = True
        self._began_s = self._clock.monotonic()
        self._end_offset = self._log.wrote_offset
        try:
            self._next_offset = self._log.segment_before(self._clock.wall_ms() - self._window.window_ms)
        except StoreError as error:
            self._fail(error)
            return
        peer_lines.info(logger, "", "event=ids_reading from=%d to=%d", self._next_offset, self._end_offset)
        self._timer = self._call_later(0.0, self._step)

    def _step(self) -> None:
        """Read one batch of records, and give way to other work."""
        self._timer = None
        if not self._is_current():
            self._begin()
            return
        try:
            if self._next_offset < self._end_offset:
                self._read()
        except StoreError as error:
            self._fail(error)
            return
        if self._next_offset < self._end_offset:
            self._timer = self._call_later(0.0, self._step)
            return
        self._is_complete = True
        took_ms = round((self._clock.monotonic() - self._began_s) * 1000)
        logger.info("event=ids_read ids=%d to=%d ms=%d", len(self._window), self._end_offset, took_ms)
        self._release()

    def _read(self) -> None:
        batch, self._next_offset = self._log.records_from(self._next_offset)
        if batch is None:
            return
        for topic, id_, send in ids_in(batch, self._end_offset):
            # A broker without the window, such as RocketMQ's, stores duplicates too: the first one counts.
            if self._window.find(topic, id_, send.stored_ms) is None:
                self._window.add(topic, id_, send)

    # Sends that waited

    def _release(self) -> None:
        """Let sends that wait go on for a slice of time, at least one, and the others in the next turns of the loop."""
        self._timer = None
        if not self._is_current():
            self._begin()
            return
        ends_at = self._clock.monotonic() + SLICE_S
        self._go_on()
        while self._held and self._clock.monotonic() < ends_at:
            self._go_on()
        self._is_reading = bool(self._held)
        if self._held:
            self._timer = self._call_later(0.0, self._release)

    def _go_on(self) -> None:
        """Let the send that waits longest go on, if any waits."""
        if self._held:
            self._is_releasing = True
            _call(self._held.popleft(), None)
            self._is_releasing = False

    def _fail(self, error: StoreError) -> None:
        """Refuse all sends that wait, some in each turn of the loop.  The next one reads the log again."""
        peer_lines.warning(logger, "", "event=ids_not_read error=%r", str(error))
        self._is_reading = False
        is_refusing = bool(self._refused)
        self._refused.extend((ready, error) for ready in self._held)
        self._held.clear()
        if not is_refusing:
            run_in_turns(self._refusals(), _REFUSED_AT_ONCE, self._call_later)

    def _refusals(self) -> Generator[None, None, None]:
        """Refuse one send in each step."""
        while self._refused:
            _call(*self._refused.popleft())
            yield

    # Service

    def figures(self) -> list[Declared]:
        """Return the figures of the window."""
        return [
            Figure(
                "idempotenceIds", "ids of idempotent messages that the broker recognises", lambda: len(self._window)
            ),
            Figure(
                "idempotenceDuplicates", "idempotent messages that the broker already had and did not store again",
                lambda: self.duplicates,
            ),
            Figure(
                "idempotenceForgottenEarly",
                "ids that were forgotten before `idempotenceWindowMs`, because of `idempotenceMaxIds`",
                lambda: self._window.forgotten_early,
            ),
        ]  # fmt: skip

    def answer_held(self) -> Generator[None, None, None]:
        """Stop reading the log; refuse the sends that wait for it, each in one step."""
        return self._end()

    def _end(self) -> Generator[None, None, None]:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refused.extend((ready, StoreError(_STOPS)) for ready in self._held)
        self._held.clear()
        yield from self._refusals()

    def stop(self) -> None:
        """Refuse what `answer_held` has left: nothing, unless the broker's start failed."""
        at_once(self._end())


def _call(ready: Ready, error: StoreError | None) -> None:
    try:
        ready(error)
    except Exception:  # a bug, for which the others do not wait for ever
        peer_lines.error(logger, "", "event=held_send_failed", exc_info=True)
