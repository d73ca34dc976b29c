"""One member of a group: the turns in which messages, commands, the disk and pysyncobj meet.

A turn takes what came in, lets pysyncobj tick once, syncs what changed, and only then sends what pysyncobj wanted to
send.  So no vote, acknowledgement or entry leaves this member before it is on the disk, one sync covers all that came
in meanwhile, and pysyncobj, which counts this member's own entries as acknowledged, ticks on synced entries alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ha.raft.consensus import ConsensusError, LeaderListener, NotLeaderError, OutcomeUnknownError, StateMachine
from ha.raft.core import Core, Group
from ha.raft.elections import Timing
from ha.raft.greeting import Claims
from ha.raft.members import check_members
from ha.raft.peers import Event, Inbox, Link, Peers
from ha.raft.replicated import MemberForgotten, Replicated, encode_change
from ha.raft.storage import Storage
from sprocket.common.clock import Clock
from sprocket.common.errors import InvariantError, ProtocolError, SprocketError
from sprocket.common.next_turn import next_turn

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seams:
    """What a member needs of the world.

    `random` returns a number from 0 to 1.  `in_thread` runs blocking work beside the event loop, one at a time.
    """

    clock: Clock
    random: Callable[[], float]
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]


class RaftMember:
    """The `Consensus` of this process.  Lives in the event loop's thread."""

    def __init__(
        self,
        group: Group,
        machine: StateMachine,
        storage: Storage,
        peers: Peers,
        seams: Seams,
        *,
        timing: Timing | None = None,
        listeners: Sequence[LeaderListener] = (),
        on_failure: Callable[[SprocketError], None] = lambda error: None,
    ) -> None:
        """Join nothing yet.  `on_failure` gets the error after which this member takes part no more.

        Raises `ConfigError` for members that cannot form a group.
        """
        check_members(group.members, group.own_id)
        self._group = group
        self._storage = storage
        self._peers = peers
        self._seams = seams
        self._timing = timing or Timing()
        self._listeners = tuple(listeners)
        self._on_failure = on_failure
        self._machine = machine
        self._inbox = Inbox()
        self._links: dict[str, Link] = {}
        self._task: asyncio.Task[None] | None = None
        self._core: Core | None = None
        self._told: tuple[str | None, int] = (None, 0)
        self._is_closing = False
        # The error that ended this member.
        self.failure: SprocketError | None = None

    # Consensus

    @property
    def leader(self) -> str | None:
        """Id of the leader that this member knows and hears."""
        core = self._running
        return None if core is None else core.leader(self._now())

    @property
    def is_leader(self) -> bool:
        """Whether this member leads and has applied all that was committed before its term."""
        core = self._running
        return core is not None and core.is_leader

    @property
    def term(self) -> int:
        """The term."""
        return 0 if self._core is None else self._core.term

    async def propose(self, command: bytes, *, timeout_ms: int) -> bytes:
        """Return the answer to `command` after a majority has synced it; see `Consensus`."""
        core = self._running
        if core is None or not core.engine.is_raft_leader:
            raise NotLeaderError(self.leader)
        answer = core.proposals.add(command)
        self._inbox.wake.set()
        try:
            return await asyncio.wait_for(asyncio.shield(answer), timeout_ms / 1000)
        except TimeoutError:
            if core.proposals.withdraw(answer):
                raise NotLeaderError(None) from None
            raise OutcomeUnknownError(f"no majority answered in {timeout_ms} ms: it may still be applied") from None
        except asyncio.CancelledError:
            core.proposals.withdraw(answer)
            raise

    async def confirm_leadership(self, *, timeout_ms: int) -> None:
        """Return once a majority has confirmed that this member leads; see `Consensus`."""
        core = self._running
        if core is None or not core.is_leader:
            raise NotLeaderError(self.leader)
        waiter = core.confirmations.add()
        self._inbox.wake.set()
        try:
            await asyncio.wait_for(waiter, timeout_ms / 1000)
        except TimeoutError:
            raise NotLeaderError(None) from None

    async def forget_member(self, member_id: str, *, timeout_ms: int) -> None:
        """Let `member_id` come back with another, empty disk.  The group must have a majority without it.

        Raises `NotLeaderError`, `OutcomeUnknownError`, or `ConsensusError` while that member is connected or unknown.
        """
        core = self._running
        if core is None or not core.is_leader:
            raise NotLeaderError(self.leader)
        if member_id not in self._group.others:
            raise ConsensusError(f"{member_id} is not another member of group {self._group.name}")
        if member_id in core.connected:
            raise ConsensusError(f"member {member_id} is connected: it is known with the right disk")
        decided: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def outcome(_: Any, reason: int) -> None:
            if not decided.done():
                decided.set_result(reason)

        core.engine.offer(encode_change(MemberForgotten(member_id)), outcome)
        self._inbox.wake.set()
        try:
            reason = await asyncio.wait_for(decided, timeout_ms / 1000)
        except TimeoutError:
            raise OutcomeUnknownError(f"no majority answered in {timeout_ms} ms: it may still be applied") from None
        if reason:
            raise NotLeaderError(None)

    async def start(self) -> None:
        """Open files and port, and take part.  Raises `ConfigError` or `StoreError`."""
        await self._seams.in_thread(self._open)
        try:
            stored, group = self._storage.stored, self._group
            core = Core(group, stored, Replicated(self._machine), self._timing, self._now(), self._seams.random)
            await self._peers.start(self._inbox, lambda: core.claims, self._judge)
        except BaseException:
            await self._peers.close()
            self._storage.close()
            raise
        self._core = core
        logger.info(
            "event=raft_started group=%s member=%s term=%d entries_to=%d start=%d disk=%s",
            group.name, group.own_id, core.term, core.journal.last_index, stored.meta.starts, stored.meta.disk_id[:8],
        )  # fmt: skip
        self._task = asyncio.get_running_loop().create_task(self._run(core))

    async def close(self) -> None:
        """Stop taking part; see `Consensus`."""
        self._is_closing = True
        self._inbox.wake.set()
        task, self._task = self._task, None
        if task is None:
            return
        # Not cancelled: a sync that is on its way uses the files.
        await task
        if self.failure is None:
            await self._end()

    # Turns

    async def _run(self, core: Core) -> None:
        try:
            while not self._is_closing:
                await self._wait()
                self._turn(core)
                await self._sync(core)
                self._send_all(core)
                self._tell()
        except SprocketError as error:
            await self._fail(error)
        except Exception as error:
            logger.exception("event=raft_bug member=%s", self._group.own_id)
            await self._fail(InvariantError(f"member {self._group.own_id}: {error!r}"))

    async def _wait(self) -> None:
        """Wait for a message, a command, or the next look at the timers."""
        wake = self._inbox.wake
        if wake.is_set():
            # Let the connections read, and others run.
            await next_turn()
        else:
            try:
                async with asyncio.timeout(self._timing.tick_s):
                    await wake.wait()
            except TimeoutError:
                return
        wake.clear()

    def _turn(self, core: Core) -> None:
        now = self._now()
        for event in self._inbox.take():
            self._take(core, event, now)
        core.tick(now)

    def _take(self, core: Core, event: Event, now: float) -> None:
        link = event.link
        member_id = link.claims.member_id
        known = self._links.get(member_id)
        if event.message is not None:
            if known is link:
                try:
                    core.received(member_id, event.message, now)
                except ProtocolError as error:
                    link.abort(str(error))
        elif event.is_open:
            if known is not None:
                known.abort("the same member connected again")
                core.left(member_id, now)
            self._links[member_id] = link
            core.joined(link.claims)
        elif known is link:
            del self._links[member_id]
            core.left(member_id, now)

    async def _sync(self, core: Core) -> None:
        """Have everything on the disk that pysyncobj took for granted."""
        unsynced, snapshot = core.journal.take(), core.snapshots.take_unwritten()
        if unsynced is None and snapshot is None:
            return
        await self._seams.in_thread(lambda: self._storage.write(unsynced, snapshot))
        core.journal.synced()
        if snapshot is not None:
            core.snapshots.written()

    def _send_all(self, core: Core) -> None:
        for member_id, message in core.outbox:
            link = self._links.get(member_id)
            if link is not None:
                link.send(message)
        core.outbox.clear()

    def _tell(self) -> None:
        now = (self.leader, self.term)
        if now != self._told:
            self._told = now
            logger.info("event=raft_leader member=%s leader=%s term=%d", self._group.own_id, now[0] or "-", now[1])
            for listener in self._listeners:
                listener(*now)

    # End

    async def _fail(self, error: SprocketError) -> None:
        """Take part no more: after a failed write nobody knows what the disk has."""
        self.failure = error
        logger.error("event=raft_stopped member=%s reason=%r", self._group.own_id, str(error))
        await self._end()
        self._tell()
        self._on_failure(error)

    async def _end(self) -> None:
        await self._peers.close()
        if self._core is not None:
            self._core.proposals.close()
            self._core.confirmations.fail(None)
        self._storage.close()

    # Helpers

    @property
    def _running(self) -> Core | None:
        return None if self.failure is not None or self._is_closing else self._core

    def _open(self) -> None:
        self._storage.open(self._group.name, self._group.own_id)

    def _judge(self, claims: Claims) -> str:
        if self._core is None or self.failure is not None:
            return "the member is not running"
        return self._core.reason_against(claims)

    def _now(self) -> float:
        return self._seams.clock.monotonic()
