"""A broker's transactions on a real store, with clock, producers and crashes in the test's hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from broker.client.clients import Member, ProducerRegistry
from broker.config.live_config import LiveConfig
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.processor.end_transaction import TransactionProcessor
from broker.topic.moved_queues import PresentPlaces
from broker.topic.topics import TopicTable
from broker.transaction.check import TransactionCheck
from broker.transaction.half_message import COMMIT, TRANSACTION_MASK, prepare
from broker.transaction.transactions import Transactions
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import FLAG_ONEWAY, Request, Response
from sprocket.remoting.headers.client import CheckTransactionStateRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.record.record import Appended, PendingMessage, Record
from tests.broker.rig import broker_config
from tests.store.insides import group_commit_of
from tests.store.reading import stored
from tests.store.rig import HOST, Stores

TOPIC, GROUP = "Orders", "PG"
UNKNOWN, ROLLBACK = 0, TRANSACTION_MASK
__all__ = ["COMMIT", "GROUP", "ROLLBACK", "TOPIC", "UNKNOWN", "Crash", "Rig"]


class Crash(Exception):
    """The process dies here."""


@dataclass
class FakeChannel:
    """The producer's end of a connection: what it was asked and answered."""

    id: int = 1
    peer: tuple[str, int] = ("10.0.0.9", 1234)
    is_closed: bool = False
    asked: list[tuple[CheckTransactionStateRequestHeader, bytes]] = field(default_factory=list)
    answers: list[Response] = field(default_factory=list)

    def notify(self, code: int, header: Any = None, body: bytes = b"") -> None:
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        self.asked.append((header, body))

    def reply(self, request: Request[Any], response: Response) -> None:
        if not request.is_oneway:
            self.answers.append(response)

    def answer_run(self, requests: Sequence[Request[Any]], frames: bytes, code: int = 0) -> None:
        for request in requests:
            self.reply(request, Response(code))


class _NoTimer:
    def cancel(self) -> None:
        """Nothing runs."""


class Rig:
    """`turn` is a turn of the check; `crash` and `reopen` are a SIGKILL and the next start."""

    def __init__(self, root: Path, *, store: dict[str, Any] | None = None, **changes: Any) -> None:
        self.root = root
        self.stores = Stores(root / "store")
        self.stores.fields |= store or {}
        self.clock = self.stores.clock
        self.changes = changes
        self.channel = FakeChannel()
        self.open()

    def open(self) -> None:
        self.store = self.stores.open()
        self.config = LiveConfig(broker_config(**self.changes), self.stores.config)
        self.offsets = ConsumerOffsets(ConfigFile(self.root / "offsets.json"), self.clock, self.config.plan_version)
        self.offsets.load()
        self.topics = TopicTable(self.config, ConfigFile(self.root / "topics.json"), self.clock)
        self.topics.load()
        self.producers = ProducerRegistry(self.clock)
        self.join(self.channel)
        self.waits = ConfirmWaits(self.store, self.clock, lambda seconds, callback: _NoTimer())
        core: Any = SimpleNamespace(
            config=self.config, store=self.store, offsets=self.offsets, topics=self.topics, producers=self.producers,
            waits=self.waits, clock=self.clock, call_later=lambda seconds, callback: _NoTimer(),
            mappings=SimpleNamespace(by_name={}),
        )  # fmt: skip
        self.transactions = Transactions(core, PresentPlaces())
        self.check = TransactionCheck(core, self.transactions, lambda channel, topic: True)
        self.processor = TransactionProcessor(core, self.transactions)
        self.transactions.load()

    def join(self, channel: FakeChannel) -> None:
        self.producers.register(GROUP, Member(channel, f"c{channel.id}", "JAVA", 479, 0.0))  # type: ignore[arg-type]

    def crash(self) -> None:
        self.stores.crash(self.store)
        self.open()

    def close(self) -> None:
        self.stores.close_all()

    def flush(self) -> None:
        """What the flush thread does."""
        self.store.confirmation.on_flushed(*group_commit_of(self.store).flush())

    def save_offsets(self) -> None:
        self.flush()
        self.transactions.commit_offsets()
        self.offsets.persist()

    # What a producer does

    def prepare(self, key: str, body: bytes = b"", age_ms: int = 0, /, **extra: str) -> Appended:
        """A half message, as the broker stores it."""
        properties = {"TRAN_MSG": "true", "UNIQ_KEY": key, "TAGS": "TagA"}
        topic, queue_id = prepare(properties, TOPIC, 2, GROUP)
        properties |= extra
        born = self.clock.wall_ms() - age_ms
        content = body or key.encode()
        return self.store.append(
            [PendingMessage(topic, queue_id, content, encode(properties).encode(), 0, 7, 0, born, HOST)]
        )[0]

    def request(
        self, half: Appended, outcome: int, *, from_check: bool = False, is_oneway: bool = False, **changes: Any
    ) -> Request[EndTransactionRequestHeader]:
        header = EndTransactionRequestHeader(
            topic=TOPIC, producer_group=GROUP, tran_state_table_offset=half[0], commit_log_offset=half[1],
            commit_or_rollback=outcome, from_transaction_check=from_check, msg_id="ID",
        )  # fmt: skip
        header = msgspec.structs.replace(header, **changes)
        flag = FLAG_ONEWAY if is_oneway else 0
        request: Request[EndTransactionRequestHeader] = Request(
            code=RequestCode.END_TRANSACTION, header=header, flag=flag
        )
        request.channel = self.channel
        return request

    def end(self, half: Appended, outcome: int, **changes: Any) -> Response | None:
        """One END_TRANSACTION and its answer, None if there is none."""
        self.channel.answers.clear()
        self.processor.end([self.request(half, outcome, **changes)])
        return self.channel.answers[0] if self.channel.answers else None

    def turn(self, seconds: float = 30.0) -> list[str]:
        """Let time pass, and check; the keys that the producer was asked about."""
        self.channel.asked.clear()
        self.clock.advance(seconds)
        self.check.turn()
        self.stores.run_notified()
        return [header.msg_id or "" for header, _ in self.channel.asked]

    def answer(self, outcomes: dict[str, int]) -> None:
        """The producer answers what it was asked."""
        for header, _ in list(self.channel.asked):
            where = (header.tran_state_table_offset, header.commit_log_offset, 0)
            self.end(where, outcomes[header.msg_id or ""], from_check=True, is_oneway=True)

    # Stored messages

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        return [stored(self.store, topic, queue_id, at) for at in range(self.store.max_offset(topic, queue_id))]

    def halves(self) -> list[Record]:
        return self.records(TRANS_HALF_TOPIC)

    def op_bodies(self) -> list[bytes]:
        return [bytes(record.body) for record in self.records(TRANS_OP_HALF_TOPIC)]

    def delivered(self) -> list[str]:
        """Keys of what consumers see."""
        return [keys(record) for record in self.records(TOPIC, 2)]

    def given_up(self) -> list[str]:
        return [keys(record) for record in self.records(TRANS_CHECK_MAX_TIME_TOPIC)]

    def open_count(self) -> int:
        opened = self.transactions.open
        end = self.store.max_offset(TRANS_HALF_TOPIC, 0)
        return sum(opened.is_open(offset) for offset in range(opened.half_offset, end))

    # Crashes

    def crash_in(self, appends: int, kept: int) -> None:
        """Let the process die in the append after so many more, with `kept` of its messages in the log; -1 for all."""
        append, left = self.store.append, appends

        def dying(messages: Sequence[PendingMessage]) -> list[Appended]:
            nonlocal left
            if left > 0:
                left -= 1
                return append(messages)
            part = list(messages) if kept < 0 else list(messages)[:kept]
            if part:
                append(part)
            raise Crash

        self.store.append = dying  # type: ignore[method-assign]
        # The compiled engine makes the same records (`test_kernels.py`), but cannot make a part of them.
        self.store.encoded_limits = lambda: (0, 0)  # type: ignore[method-assign]


def keys(record: Record) -> str:
    return parse(bytes(record.properties).decode())["UNIQ_KEY"]
