"""Topics that a message reaches beside the one that it is sent to, by its properties.  Pure.

``INNER_MULTI_DISPATCH`` names light queues that the record enters as well, ``TIMER_DEL_UNIQKEY`` a delayed message that
it takes back.  Every value of every occurrence counts, wherever it stands: whichever of them a store goes by, it was
asked for.  Source: RocketMQ 5.3.3, `LmqDispatch`, `TimerMessageStore.buildDeleteKey`; see `store.queue.multi_dispatch`.
"""

from collections.abc import Iterator
from typing import Final

from sprocket.remoting.message.properties import NAME_END, VALUE_END

_DISPATCH: Final = "INNER_MULTI_DISPATCH"
_DELETE: Final = "TIMER_DEL_UNIQKEY"
_NAMES: Final = (_DISPATCH, _DELETE)


def carried_topics(properties: str | None, batch: bytes = b"") -> list[str]:
    """The topics that `properties` and those of the messages in `batch` name; usually none."""
    found: list[str] = []
    if properties and (_DISPATCH in properties or _DELETE in properties):
        found += _in(properties)
    if batch and (_DISPATCH.encode() in batch or _DELETE.encode() in batch):
        found += _in(batch.decode("utf-8", "replace"))
    return found


def _in(text: str) -> Iterator[str]:
    for name in _NAMES:
        for piece in text.split(name + NAME_END)[1:]:
            value = piece.partition(VALUE_END)[0].encode("utf-8", "replace").decode()
            if name == _DISPATCH:
                yield from (queue for queue in value.split(",") if queue)
            else:
                # Without a topic it is one of the message's own.
                topic, plus, _ = value.rpartition("+")
                if plus:
                    yield topic
