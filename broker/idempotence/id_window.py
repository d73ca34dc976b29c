"""Window of the ids of idempotent messages, bounded by time and by number.

Pure: the same sends in the same order give the same window, whether they come from clients or from the log.
"""

from collections import OrderedDict
from typing import NamedTuple

from sprocket.remoting.message.properties import sequence_of


class FirstSend(NamedTuple):
    """Place of the message that came first with an id.  `stored_ms` is its store timestamp.

    A delayed message lies in `topic` until it is delivered, in queue `queue_id` there; producers know `sent_queue_id`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    unique_key: str
    stored_ms: int
    sent_queue_id: int
    slot_ms: int = 0  # its slot in the timer wheel; 0 for none


class IdWindow:
    """The newest ids: at most `max_ids`, none older than `window_ms`.  All times are wall time in ms.

    An id counts within one topic.  Ids expire in the order in which they were added; after a clock was set back, an
    older one may stay for as long as the newer one before it.

    An id may be a number in a stream (`sequence_of`).  It is found if the stream has this number or a higher one.  A
    stream has one place among `max_ids`, however many messages it has, and does not expire.
    """

    def __init__(self, window_ms: int, max_ids: int) -> None:
        self.window_ms = window_ms
        self.max_ids = max_ids
        # Ids that were forgotten before their time, because newer ones needed the room.
        self.forgotten_early = 0
        # Oldest first.  A dict would search for its oldest item.
        self._sends: OrderedDict[tuple[str, str], FirstSend] = OrderedDict()
        # The last number of each stream, and its message; the stream that was used last is the last.
        self._streams: OrderedDict[tuple[str, str], tuple[int, FirstSend]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sends) + len(self._streams)

    def find(self, topic: str, id_: str, now_ms: int) -> FirstSend | None:
        """Return the message that came first with this id; None if there was none within the window.

        For a number in a stream it is the stream's last message, if its number is not lower.
        """
        if sequence := sequence_of(id_):
            stream, number = sequence
            last_number, last = self._streams.get((topic, stream), (-1, None))
            return last if number <= last_number else None
        first = self._sends.get((topic, id_))
        return None if first is None or self._is_expired(first, now_ms) else first

    def add(self, topic: str, id_: str, send: FirstSend) -> None:
        """Add a message that was stored at `send.stored_ms` under an id that `find` does not find."""
        if sequence := sequence_of(id_):
            stream, number = sequence
            self._streams[topic, stream] = number, send
            self._streams.move_to_end((topic, stream))
            if len(self._streams) > self.max_ids:
                self._streams.popitem(last=False)
                self.forgotten_early += 1
            return
        sends, key = self._sends, (topic, id_)
        sends.pop(key, None)
        sends[key] = send
        while sends:
            oldest = next(iter(sends.values()))
            is_expired = self._is_expired(oldest, send.stored_ms)
            if not is_expired and len(sends) <= self.max_ids:
                break
            sends.popitem(last=False)
            self.forgotten_early += not is_expired

    def remove(self, topic: str, id_: str) -> None:
        """Forget an id, whose message is gone."""
        self._sends.pop((topic, id_), None)
        if sequence := sequence_of(id_):
            self._streams.pop((topic, sequence[0]), None)

    def _is_expired(self, send: FirstSend, now_ms: int) -> bool:
        return now_ms - send.stored_ms >= self.window_ms
