"""What a slave answers pulls with, and when it sends a consumer to its master.

A slave serves what it has.  A consumer that reads near the end of the log belongs to the master, as long as that is
there: it is told so with whatever it asks for.  What the slave's queue does not have, the master's may have, so a slave
moves nobody's offset.
Source: RocketMQ 5.3.3, `PullMessageProcessor.rejectRequest` and `composeResponseHeader`,
`DefaultPullMessageResultHandler.handle`, `DefaultMessageStore.nextOffsetCorrection`,
`PullRequestHoldService.notifyMasterOnline`.

Different here.  The master is there if this slave replicates from it now; RocketMQ goes by the lowest broker id of the
group, which without enableSlaveActingMaster stays that of the master for ever, so that a slave without one answers
consumers at the end of their queues at once, again and again.  A consumer that was sent to the master and comes back
at once, because its route does not have the master, is held for a second.  A consumer that is ahead of the slave is
held until the slave is there.  A slave that may not be read sends consumers to the master where RocketMQ only refuses
them: one whom the master has sent here would never ask the master again.  An offset that an operator has set is told as
on a master.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from broker.config.live_config import LiveConfig
from broker.periodic import Periodic
from broker.role import Role
from broker.service import Service
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from store.queue.get_result import GetResult, GetStatus

logger = logging.getLogger(__name__)

_WATCH_S: Final = 0.2
# Who was sent to the master in this second or the last and is here again has no way to it, and waits for so long.
_SENT_AWAY_S: Final = 1.0
# Consumers of one second that are remembered as sent away, at the most; further ones wait.
_MOST_SENT_AWAY: Final = 8_192
_NO_HOLD_LIMIT_S: Final = float("inf")  # the pull is held for as long as its client asked
_REFUSED: Final = "[REJECTREQUEST]system busy, start flow control for a while"
# The read went on from where the consumer asked.
_PROGRESS: Final = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


class Verdict(NamedTuple):
    """How a pull that found nothing is answered: with `code`, unless it can be held for `hold_s` at the most."""

    code: int
    hold_s: float = 0.0


def suggested_id(result: GetResult, group: SubscriptionGroupConfig, slave_read_enable: bool) -> int:
    """Which member of the broker's group a consumer is to pull from next."""
    if not slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


class HeldReads(Protocol):
    """Those who wait at the ends of queues."""

    def wake_all(self) -> None:
        """Answer them as it is now."""
        ...


class SlaveReads(Service):
    """The reading side of one slave.  Lives in the event loop's thread.

    `is_master_online` says whether this slave has a connection to its master.
    """

    def __init__(
        self, config: LiveConfig, role: Role, clock: Clock, is_master_online: Callable[[], bool], held: HeldReads
    ) -> None:
        self._config = config
        self._role = role
        self._clock = clock
        self._is_connected = is_master_online
        self._held = held
        self._was_online = False
        # (channel, group, topic, queue id) of those who were sent to the master in this second, and in the last.
        self._sent_away: set[tuple[int, str, str, int]] = set()
        self._sent_before: set[tuple[int, str, str, int]] = set()
        self._second_began_at = clock.monotonic()

    def periodic(self) -> list[Periodic]:
        """See the master come."""
        return [Periodic("master_watch", _WATCH_S, self.watch)]

    @property
    def is_master_online(self) -> bool:
        """Whether consumers are better served by the master."""
        return not self._role.is_acting and self._is_connected()

    def watch(self) -> None:
        """When the master has come, those who wait here go there."""
        is_online = self.is_master_online
        if is_online == self._was_online:
            return
        self._was_online = is_online
        logger.info("event=master_seen online=%s", is_online)
        if is_online:
            self._held.wake_all()

    def refusal(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        """The answer where this slave may not be read; None where it may."""
        if self._config.broker.slave_read_enable or self._role.is_acting:
            return None
        if not self.is_master_online or self._came_back(request):
            return Response(ResponseCode.SYSTEM_BUSY, _REFUSED)
        self._note_sent_away(request)
        header = PullMessageResponseHeader(
            suggest_which_broker_id=MASTER_ID, next_begin_offset=request.header.queue_offset, min_offset=0, max_offset=0
        )
        return Response(
            ResponseCode.PULL_RETRY_IMMEDIATELY, "this slave is not to be read: pull from the master", header
        )

    def suggested_id(self, result: GetResult, group: SubscriptionGroupConfig) -> int:
        """Whom to pull from next."""
        if not result.suggest_slave and self.is_master_online:
            return MASTER_ID
        return suggested_id(result, group, self._config.broker.slave_read_enable)

    def correct(self, result: GetResult, asked_offset: int) -> None:
        """Leave the consumer where it is if this slave's queue does not have that place."""
        if result.status not in _PROGRESS and not self._moves(result):
            result.next_offset = asked_offset

    def verdict(self, request: Request[Any], result: GetResult, code: int, *, may_hold: bool) -> Verdict:
        """What becomes of a pull that found nothing, and that a master would answer with `code`."""
        if result.status is GetStatus.OFFSET_RESET:
            return Verdict(code)
        if not result.suggest_slave and self.is_master_online:
            return self._to_master(request, result, may_hold=may_hold)
        if code == ResponseCode.PULL_NOT_FOUND:
            return Verdict(code, _NO_HOLD_LIMIT_S)
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._moves(result):
            return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY, _NO_HOLD_LIMIT_S)
        return Verdict(code)

    def _moves(self, result: GetResult) -> bool:
        return result.status is GetStatus.OFFSET_RESET or self._config.store.offset_check_in_slave

    def _to_master(self, request: Request[Any], result: GetResult, *, may_hold: bool) -> Verdict:
        if result.status not in _PROGRESS:
            if may_hold and self._came_back(request):
                return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY, _SENT_AWAY_S)
            self._note_sent_away(request)
        return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY)

    def _came_back(self, request: Request[PullMessageRequestHeader]) -> bool:
        """Whether it was sent to the master just now; also if there are too many to tell."""
        passed_s = self._clock.monotonic() - self._second_began_at
        if passed_s >= _SENT_AWAY_S:
            self._sent_before = self._sent_away if passed_s < 2 * _SENT_AWAY_S else set()
            self._sent_away = set()
            self._second_began_at += passed_s
        key = _key(request)
        return key in self._sent_away or key in self._sent_before or len(self._sent_away) >= _MOST_SENT_AWAY

    def _note_sent_away(self, request: Request[PullMessageRequestHeader]) -> None:
        if len(self._sent_away) < _MOST_SENT_AWAY:
            self._sent_away.add(_key(request))


def _key(request: Request[PullMessageRequestHeader]) -> tuple[int, str, str, int]:
    header = request.header
    return request.channel.id, header.consumer_group, header.topic, header.queue_id
