"""Commands on their way into the log, and reads that wait for a majority to confirm the leader."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pysyncobj.config import FAIL_REASON

from ha.raft.consensus import ConsensusBusyError, ConsensusError, NotLeaderError, OutcomeUnknownError
from ha.raft.messages import MAX_COMMAND_BYTES
from ha.raft.replicated import Commands, encode_change

# Waiting commands and their bytes, and commands in one entry.
_MAX_WAITING: Final = 10_000
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
_MAX_BATCH: Final = 1000
# Of the command that may hold the user's: its kind and MessagePack's heads.
_OVERHEAD_BYTES: Final = 16
_PER_COMMAND_BYTES: Final = 8
MAX_USER_COMMAND_BYTES: Final = MAX_COMMAND_BYTES - _OVERHEAD_BYTES - _PER_COMMAND_BYTES
# pysyncobj's reasons with which a command is certainly not applied, now or later.
_NOT_APPLIED: Final = frozenset(
    {FAIL_REASON.QUEUE_FULL, FAIL_REASON.MISSING_LEADER, FAIL_REASON.DISCARDED, FAIL_REASON.NOT_LEADER,
     FAIL_REASON.REQUEST_DENIED}
)  # fmt: skip

Answer = asyncio.Future[bytes]


class Proposals:
    """Commands that wait for the next turn, which makes one entry of all of them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, Answer]] = deque()
        self._waiting_bytes = 0
        # Answers of commands that are in the log, or may be.
        self._offered: set[Answer] = set()

    def __len__(self) -> int:
        """Return the number of waiting commands."""
        return len(self._waiting)

    def add(self, command: bytes) -> Answer:
        """Add a command.  Raises `ConsensusBusyError` or `ValueError`."""
        if len(command) > MAX_USER_COMMAND_BYTES:
            raise ValueError(f"a command of {len(command)} bytes: the maximum is {MAX_USER_COMMAND_BYTES}")
        if len(self._waiting) >= _MAX_WAITING or self._waiting_bytes + len(command) > _MAX_WAITING_BYTES:
            raise ConsensusBusyError(f"{len(self._waiting)} commands wait: try again later")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((command, answer))
        self._waiting_bytes += len(command)
        return answer

    def withdraw(self, answer: Answer) -> bool:
        """Take back a command.  Return whether it was still waiting, so that it is certainly not applied."""
        answer.cancel()
        for at, (command, other) in enumerate(self._waiting):
            if other is answer:
                del self._waiting[at]
                self._waiting_bytes -= len(command)
                return True
        self._offered.discard(answer)
        return False

    def next_batch(self) -> tuple[bytes, Callable[[Any, int], None]] | None:
        """Return the command of the next entry, and who gets its outcome; None if nothing waits."""
        commands: list[bytes] = []
        answers: list[Answer] = []
        room = MAX_COMMAND_BYTES - _OVERHEAD_BYTES
        while self._waiting and len(commands) < _MAX_BATCH:
            command, answer = self._waiting[0]
            room -= len(command) + _PER_COMMAND_BYTES
            if room < 0 and commands:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(command)
            commands.append(command)
            answers.append(answer)
        if not commands:
            return None
        self._offered.update(answers)

        def outcome(results: Any, reason: int) -> None:
            self._decided(answers, results, reason)

        return encode_change(Commands(commands)), outcome

    def refuse_waiting(self, leader: str | None) -> None:
        """Refuse what waits: this member does not lead."""
        while self._waiting:
            _fail(self._waiting.popleft()[1], NotLeaderError(leader))
        self._waiting_bytes = 0

    def close(self) -> None:
        """Refuse what waits, and leave open what was offered."""
        self.refuse_waiting(None)
        offered, self._offered = self._offered, set()
        for answer in offered:
            _fail(answer, OutcomeUnknownError("this member stops: the command may still be applied"))

    def _decided(self, answers: list[Answer], results: Any, reason: int) -> None:
        self._offered.difference_update(answers)
        if reason == FAIL_REASON.SUCCESS:
            for answer, result in zip(answers, results, strict=True):
                if not answer.done():
                    answer.set_result(result)
            return
        for answer in answers:
            if reason in _NOT_APPLIED:
                _fail(answer, NotLeaderError(None))
            else:
                _fail(answer, OutcomeUnknownError(f"the leader changed (pysyncobj's reason {reason})"))


class Confirmations:
    """Reads that wait until a majority confirms, in answer to a later question, that this member leads."""

    def __init__(self, majority: int) -> None:
        self._majority = majority
        self._round = 0
        self._asked: list[tuple[int, asyncio.Future[None], set[str]]] = []
        self._new: list[asyncio.Future[None]] = []

    def add(self) -> asyncio.Future[None]:
        """Add a read."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._new.append(waiter)
        return waiter

    def next_round(self) -> int | None:
        """Return the number of the question to ask now; None if no read needs another one."""
        self._asked = [one for one in self._asked if not one[1].done()]
        waiting = [one for one in self._new if not one.done()]
        self._new = []
        if not waiting:
            return None
        self._round += 1
        self._asked += [(self._round, waiter, set()) for waiter in waiting]
        self._resolve()
        return self._round

    def confirmed(self, member_id: str, round_number: int) -> None:
        """Note that a member confirmed the question with this number, and so all earlier ones."""
        for asked_in, _, members in self._asked:
            if asked_in <= round_number:
                members.add(member_id)
        self._resolve()

    def fail(self, leader: str | None) -> None:
        """Refuse all reads: this member does not lead."""
        waiters = [*self._new, *(waiter for _, waiter, _ in self._asked)]
        self._new, self._asked = [], []
        for waiter in waiters:
            _fail(waiter, NotLeaderError(leader))

    def _resolve(self) -> None:
        for _, waiter, members in self._asked:
            if len(members) + 1 >= self._majority and not waiter.done():
                waiter.set_result(None)


def _fail(future: "asyncio.Future[Any]", error: ConsensusError) -> None:
    if not future.done():
        future.set_exception(error)
