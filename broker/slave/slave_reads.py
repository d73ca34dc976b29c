"""A slave's answers to pulls, and its redirection of consumers to the master.

A slave serves what it has.  It redirects a consumer that reads near the end of the log to the master while the master
is online.  A slave changes no consumer's offset, because the master's queue may have what the slave's lacks.
Source: RocketMQ 5.3.3, `PullMessageProcessor.rejectRequest` and `composeResponseHeader`,
`DefaultPullMessageResultHandler.handle`, `DefaultMessageStore.nextOffsetCorrection`,
`PullRequestHoldService.notifyMasterOnline`.

Differences from RocketMQ:

- The master is online if this slave replicates from it now.  RocketMQ uses the group's lowest broker id, which without
  enableSlaveActingMaster stays the master's for ever.  Its slave without a master therefore answers consumers at the
  end of their queues at once, again and again.
- A consumer that was redirected but returns at once, because its route lacks the master, is held for a second.
- A consumer that is ahead of the slave is held until the slave has caught up.
- A slave that may not be read redirects consumers, where RocketMQ only refuses them: a consumer that the master
  redirected here would never ask the master again.
- An offset that an operator has reset is answered as by a master.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.config.live_config import LiveConfig
from broker.longpolling.held_pulls import HeldPulls
from broker.periodic import Periodic
from broker.role import Role
from broker.service import Service
from sprocket.common.clock import Clock
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.refusals import Refusal
from store.queue.get_result import GetResult, GetStatus

logger = logging.getLogger(__name__)

_WATCH_S: Final = 0.2
# A consumer that was redirected to the master but returns within two seconds cannot reach it.  Hold it for this long.
_REDIRECT_S: Final = 1.0
# Limit of consumers remembered per second as redirected; further ones are held.
_MAX_REDIRECTED: Final = 8_192
_NO_HOLD_LIMIT_S: Final = float("inf")  # the client's own limit counts
_REFUSED: Final = "[REJECTREQUEST]system busy, start flow control for a while"
# The read continued from the offset that the consumer asked for.
_PROGRESS: Final = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


class Verdict(NamedTuple):
    """Answer to a pull that found nothing: `code`, unless the pull can be held for up to `hold_s`."""

    code: int
    hold_s: float = 0.0


def suggested_id(result: GetResult, group: SubscriptionGroupConfig, slave_read_enable: bool) -> int:
    """Return the id of the group's member that a consumer should pull from next."""
    if not slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


class SlaveReads(Service):
    """Pull side of one slave.  Lives in the event loop's thread.

    `is_master_online` returns whether this slave has a connection to its master, `is_resting` whether controllers have
    told it that there is none.
    """

    def __init__(
        self,
        config: LiveConfig,
        role: Role,
        clock: Clock,
        is_master_online: Callable[[], bool],
        held: HeldPulls,
        is_resting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._role = role
        self._clock = clock
        self._is_connected = is_master_online
        self._is_resting = is_resting
        self._held = held
        self._was_online = False
        # (channel, group, topic, queue id) of consumers that were redirected in this second, and in the one before.
        self._redirected: set[tuple[int, str, str, int]] = set()
        self._redirected_before: set[tuple[int, str, str, int]] = set()
        self._second_began_at = clock.monotonic()

    def periodic(self) -> list[Periodic]:
        """Watch whether the master is online."""
        return [Periodic("master_watch", _WATCH_S, self.watch)]

    @property
    def is_master_online(self) -> bool:
        """Whether consumers should read from the master."""
        return not self._role.is_acting and self._is_connected()

    def watch(self) -> None:
        """Redirect held pulls once the master is online."""
        is_online = self.is_master_online
        if is_online == self._was_online:
            return
        self._was_online = is_online
        logger.info("event=master_seen online=%s", is_online)
        if is_online:
            self._held.answer_soon()

    def refusal(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        """Return the answer if this slave may not be read; None if it may."""
        if self._config.broker.slave_read_enable or self._role.is_acting or self._is_resting():
            return None
        if not self.is_master_online or self._was_redirected(request):
            return Refusal(ResponseCode.SYSTEM_BUSY, _REFUSED, reason=Reason.SLAVE)
        self._note_redirected(request)
        header = PullMessageResponseHeader(
            suggest_which_broker_id=MASTER_ID, next_begin_offset=request.header.queue_offset, min_offset=0, max_offset=0
        )
        return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, "this slave may not be read: pull from the master", header)

    def suggested_id(self, result: GetResult, group: SubscriptionGroupConfig) -> int:
        """Return the id of the member to pull from next."""
        if not result.suggest_slave and self.is_master_online:
            return MASTER_ID
        return suggested_id(result, group, self._config.broker.slave_read_enable)

    def correct(self, result: GetResult, asked_offset: int) -> None:
        """Keep the consumer's offset if this slave's queue does not reach it."""
        if result.status not in _PROGRESS and not self._moves(result):
            result.next_offset = asked_offset

    def verdict(self, request: Request[Any], result: GetResult, code: int, *, may_hold: bool) -> Verdict:
        """Decide about a pull that found nothing and that a master would answer with `code`."""
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
            if may_hold and self._was_redirected(request):
                return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY, _REDIRECT_S)
            self._note_redirected(request)
        return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY)

    def _was_redirected(self, request: Request[PullMessageRequestHeader]) -> bool:
        """Return whether the consumer was redirected just now, or too many were to tell."""
        passed_s = self._clock.monotonic() - self._second_began_at
        if passed_s >= _REDIRECT_S:
            self._redirected_before = self._redirected if passed_s < 2 * _REDIRECT_S else set()
            self._redirected = set()
            self._second_began_at += passed_s
        key = _key(request)
        return key in self._redirected or key in self._redirected_before or len(self._redirected) >= _MAX_REDIRECTED

    def _note_redirected(self, request: Request[PullMessageRequestHeader]) -> None:
        if len(self._redirected) < _MAX_REDIRECTED:
            self._redirected.add(_key(request))


def _key(request: Request[PullMessageRequestHeader]) -> tuple[int, str, str, int]:
    header = request.header
    return request.channel.id, header.consumer_group, header.topic, header.queue_id
