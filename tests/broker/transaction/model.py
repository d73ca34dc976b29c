"""What transactions must be like, and the directory that a crash in an append would leave."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from broker.server import Broker
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.topic_names import TRANS_OP_HALF_TOPIC
from store.appender import EncodedRecords
from store.record.record import Appended, PendingMessage
from tests.broker.transaction.model_producer import Place
from tests.broker.transaction.rig import COMMIT
from tests.running_copy import copy_of_running

Target: TypeAlias = tuple[str, int]  # topic, queue id
TOPICS: Final = ("Orders", "Payments")
QUEUES: Final = (0, 1)
TIMEOUT_MS: Final = 6_000
CHECK_MAX: Final = 3


@dataclass
class Transaction:
    """One transaction as its producer should find it."""

    key: str
    group: str
    target: Target
    born_ms: int
    immunity: str | None
    places: list[Place]  # where it lay first, and each copy; it is open at the last
    stored_ms: int
    checks: int = 0
    state: str = "open"

    @property
    def open_at(self) -> int:
        return self.places[-1][0]

    def ending(self, place: Place, outcome: int, *, from_check: bool = False) -> EndTransactionRequestHeader:
        """What its producer sends to end it."""
        return EndTransactionRequestHeader(
            topic=self.target[0], producer_group=self.group, tran_state_table_offset=place[0],
            commit_log_offset=place[1], commit_or_rollback=outcome, from_transaction_check=from_check,
            msg_id=self.key,
        )  # fmt: skip

    def immunity_ms(self) -> int | None:
        if self.immunity is None:
            return None
        return int(self.immunity) * 1000 if self.immunity.isdigit() else TIMEOUT_MS

    def is_refused_unasked(self, now_ms: int) -> bool:
        immunity_ms = self.immunity_ms()
        return immunity_ms is not None and now_ms - self.born_ms > max(immunity_ms, TIMEOUT_MS)

    def due(self, now_ms: int) -> str:
        """What a turn of the check does with it."""
        if self.checks >= CHECK_MAX:
            return "give up"
        immunity_ms, age_ms = self.immunity_ms(), now_ms - self.born_ms
        if self.stored_ms >= now_ms:
            return "wait"
        if immunity_ms is not None:
            return "renew" if age_ms < immunity_ms else "ask"
        return "wait" if age_ms < TIMEOUT_MS else "ask"


@dataclass
class Model:
    """What must be."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    visible: dict[Target, list[str]] = field(
        default_factory=lambda: {(topic, queue_id): [] for topic in TOPICS for queue_id in QUEUES}
    )
    given_up: list[str] = field(default_factory=list)
    halves: int = 0

    def open(self) -> list[Transaction]:
        """In the order of the half queue."""
        found = [transaction for transaction in self.transactions.values() if transaction.state == "open"]
        return sorted(found, key=lambda transaction: transaction.open_at)

    def end(self, transaction: Transaction, outcome: int) -> None:
        assert transaction.state == "open"
        transaction.state = "committed" if outcome == COMMIT else "rolled back"
        if outcome == COMMIT:
            self.visible[transaction.target].append(transaction.key)

    def cut_ends(self, ended: list[Transaction], outcomes: dict[str, int], written: list[PendingMessage]) -> None:
        """Of an append that ends those, `written` has reached the log."""
        named = b""
        for message in written:
            if message.topic == TRANS_OP_HALF_TOPIC:
                named += message.body
            else:
                self.end(self.transactions[bytes(message.body).decode()], COMMIT)
        for transaction in ended:
            if transaction.state == "open" and b"%d" % transaction.open_at in named.split(b","):
                self.end(transaction, outcomes[transaction.key])

    def copied(self, acts: list[tuple[Transaction, str]], now_ms: int, half_place: Callable[[int], Place]) -> None:
        """What a turn of the check writes, in this order, before it says what it has given up."""
        for transaction, act in acts:
            if act == "give up":
                self.given_up.append(transaction.key)
                continue
            transaction.places.append(half_place(self.halves))
            self.halves += 1
            transaction.stored_ms = now_ms
            transaction.checks += act == "ask"


class CutAppend:
    """Copies the store's directory in the middle of the next append: what a SIGKILL there would leave."""

    def __init__(self, broker: Broker, kept: int, folder: Path, copy: Path) -> None:
        self._append, self._kept, self._folder, self._copy = broker.store.append, kept, folder, copy
        self.written: list[PendingMessage] | None = None  # of the append that is cut
        self._append_encoded = broker.store.append_encoded
        broker.store.append = self  # type: ignore[method-assign]
        broker.store.append_encoded = self._refuse  # type: ignore[method-assign]

    def _refuse(self, records: EncodedRecords) -> int:
        """The compiled engine's messages cannot be cut apart: until the cut, Python makes them."""
        if self.written is not None:
            return self._append_encoded(records)
        raise RequestError(ResponseCode.SYSTEM_ERROR, "this append is to be cut")

    def __call__(self, messages: Sequence[PendingMessage]) -> list[Appended]:
        if self.written is not None:
            return self._append(messages)
        self.written = list(messages[: self._kept])
        first = self._append(self.written) if self.written else []
        copy_of_running(self._folder, self._copy)
        rest = list(messages[self._kept :])
        return first + (self._append(rest) if rest else [])
