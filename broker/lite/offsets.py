"""Where groups are in lite topics.

Source: RocketMQ 5.5.1, `PopLiteMessageProcessor.getPopOffset`, `LiteSubscriptionRegistryImpl.resetOffset`.
"""

from typing import Final

from broker.core import BrokerCore
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from broker.pop.pop_offsets import PopOffsets
from sprocket.remoting.bodies.lite import OffsetOption, OffsetOptionType

_FROM_END: Final = 1
_POLICY_FIRST: Final = 1
_POLICY_END: Final = 2


class LiteOffsets:
    """Offsets of groups in light queues.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, pops: PopOffsets, order: LiteOrder) -> None:
        self._store = core.store
        self._offsets = core.offsets
        self._pops = pops
        self._order = order

    def has_unread(self, queue: str, group: str) -> bool:
        """Return whether a queue has messages that the group has not acknowledged; true if it is new to the queue."""
        end = self._store.max_offset(queue, LITE_QUEUE_ID)
        return end > 0 and self._offsets.query(group, queue, LITE_QUEUE_ID) < end

    def begin(self, queue: str, group: str) -> int:
        """Return where a pop begins; sets the first offset of a group that is new to the queue, and applies a reset."""
        if self._offsets.has_resets and self._offsets.is_reset(group, queue, LITE_QUEUE_ID):
            self._order.forget(queue, group)
        return self._pops.begin(queue, group, LITE_QUEUE_ID, _FROM_END)

    def reset(self, queue: str, group: str, option: OffsetOption) -> None:
        """Move a group at once.  A pop is one turn of the event loop, so none is under way.

        RocketMQ ignores an option of type TIMESTAMP.
        """
        current = self._offsets.query(group, queue, LITE_QUEUE_ID)
        target = self._target(queue, current, option)
        if target is not None and target != current:
            self._offsets.take_reset(group, queue, LITE_QUEUE_ID)
            self._order.forget(queue, group)
            self._offsets.assign(group, queue, LITE_QUEUE_ID, target)

    def _target(self, queue: str, current: int, option: OffsetOption) -> int | None:
        match option.type:
            case OffsetOptionType.POLICY if option.value == _POLICY_FIRST:
                return 0
            case OffsetOptionType.POLICY if option.value == _POLICY_END:
                return self._store.max_offset(queue, LITE_QUEUE_ID)
            case OffsetOptionType.OFFSET:
                return max(option.value, 0)
            case OffsetOptionType.TAIL_N if current >= 0:
                return max(current - option.value, 0)
            case OffsetOptionType.TIMESTAMP:
                return self._store.offset_by_time(queue, LITE_QUEUE_ID, option.value)
        return None
