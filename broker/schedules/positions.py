"""How far each schedule has fired.  The log is the only source; the table is a note of what it says up to an offset.

The message of a fire time has the property INNER_SCHEDULE with the schedule's id and the time.  So the message and the
position are one record, and a crash cannot separate them.  A replica that begins to send reads the log from the
noted offset to its end.  Senders cannot set the property: brokers drop it (`broker/send/intake.py`).
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.schedules.schedule_table import ScheduleTable
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.remoting.bodies.schedule import SchedulePosition, SchedulePositionsBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import INNER_SCHEDULE, VALUE_END_BYTES, encoded_name, find_last
from store.scan.record_batch import RecordBatch

_NAME: Final = encoded_name(INNER_SCHEDULE)
# So much log without a fired message is noted, too; else the next start would read it.
_NOTED_BYTES: Final = 256 * 1024 * 1024


class Fired(NamedTuple):
    """What a message in the log says: its schedule has fired at a time."""

    key: str
    id: str
    fire_ms: int

    def property(self) -> bytes:
        """Return the property of the message, encoded."""
        return _NAME + f"{self.id}:{self.fire_ms}:{self.key}".encode() + VALUE_END_BYTES


def _read(value: bytes) -> Fired | None:
    id_, _, rest = value.partition(b":")
    fire_ms, _, key = rest.partition(b":")
    return Fired(java_text(key), java_text(id_), int(fire_ms)) if fire_ms.isdigit() else None


def fired_in(batch: RecordBatch) -> Iterator[Fired]:
    """Yield what the messages of `batch` say.  Copies, such as those of retries, say the same again."""
    for record in batch.records_with(_NAME):
        value = find_last(batch.properties(record), _NAME)
        fired = None if value is None else _read(value)
        if fired is not None:
            yield fired


class SchedulePositions(SavedTable):
    """Positions of the schedules of a `ScheduleTable`.  Lives in the event loop's thread."""

    def __init__(self, file: ConfigFile, schedules: ScheduleTable, log_end: Callable[[], int]) -> None:
        super().__init__(file)
        self._schedules = schedules
        self._log_end = log_end
        self._by_key: dict[str, SchedulePosition] = {}
        self.log_offset = 0  # the log is known before it; a master that sends knows all of its log
        self._noted_offset = 0
        self._has_fired = False

    def fired_ms(self, key: str) -> int | None:
        """Return the last fire time of a schedule that is in the log; None if it has not fired."""
        entry, position = self._schedules.by_name.get(key), self._by_key.get(key)
        return position.fired_millis if entry and position and entry.id == position.id else None

    def note(self, fired: Fired) -> None:
        """Note that a message is in the log."""
        entry = self._schedules.by_name.get(fired.key)
        if entry is not None and entry.id == fired.id and fired.fire_ms > (self.fired_ms(fired.key) or 0):
            self._by_key[fired.key] = SchedulePosition(fired.id, fired.fire_ms)
            self._has_fired = True

    def begin(self) -> None:
        """Note that the log says nothing of schedules so far, because there were none."""
        self._by_key, self.log_offset = {}, self._log_end()
        self._noted_offset = self.log_offset
        self.changes += 1

    def note_log(self) -> None:
        """Note that all of the log is known; let the table be saved and replicated if it says more than before."""
        self.log_offset = self._log_end()
        is_far = self.log_offset - self._noted_offset >= _NOTED_BYTES
        if self._schedules.by_name and (self._has_fired or is_far):
            self._has_fired, self._noted_offset = False, self.log_offset
            self.changes += 1

    # The file, and the copies of slaves

    def decode(self, content: bytes) -> None:
        """Take over the content of the file.  Raises ProtocolError."""
        self._take_over(loads(content, SchedulePositionsBody))

    def replace(self, body: SchedulePositionsBody) -> None:
        """Replace the positions by a master's; this replica has the log that they were read from."""
        self._take_over(body)
        self.changes += 1

    def _take_over(self, body: SchedulePositionsBody) -> None:
        self._by_key = dict(body.positions)
        self.log_offset = self._noted_offset = body.log_offset

    def _body(self) -> SchedulePositionsBody:
        known = self._schedules.by_name
        self._by_key = {key: position for key, position in self._by_key.items() if key in known}
        return SchedulePositionsBody(self.log_offset, self._by_key.copy())

    def encode(self) -> bytes:
        """Return the whole table."""
        return dumps(self._body())

    def _content(self) -> Callable[[], bytes]:
        body = self._body()
        return lambda: dumps(body)
