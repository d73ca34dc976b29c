"""Notices to the members of consumer groups that have changed, so that they divide the queues again.

Source: RocketMQ 5.3.3, `DefaultConsumerIdsChangeListener`.  There all members are told of each change at once: a host
with a thousand consumers of a group that dies causes half a million notices.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker.client.clients import ConsumerGroup
from broker.turns import CallLater, run_in_turns
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

# Notices in a turn of the loop.
_AT_ONCE: Final = 64


class RebalanceNotices:
    """Tells the members of changed groups in the next turns of the loop, once for all changes until then.

    Does nothing while `is_enabled()` is false (notifyConsumerIdsChangedEnable).
    """

    def __init__(self, is_enabled: Callable[[], bool], call_later: CallLater) -> None:
        self._is_enabled = is_enabled
        self._call_later = call_later
        self._changed: dict[str, ConsumerGroup] = {}
        self._is_telling = False

    def changed(self, group: ConsumerGroup) -> None:
        """Tell the members of a group soon: a listener of the registry."""
        if not self._is_enabled():
            return
        self._changed[group.name] = group
        if not self._is_telling:
            self._is_telling = True
            self._call_later(0.0, partial(run_in_turns, self._tell(), _AT_ONCE, self._call_later))

    def _tell(self) -> Iterator[None]:
        try:
            while self._changed:
                changed, self._changed = self._changed, {}
                for group in changed.values():
                    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
                    for member in list(group.members.values()):
                        member.channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
                        yield
        finally:
            self._is_telling = False
