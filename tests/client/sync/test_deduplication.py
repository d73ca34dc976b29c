"""The blocking deduplicator: threads that get copies of one message, stores, errors, redelivery."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sprocket import (
    ClientError,
    ConsumeFrom,
    IllegalArgument,
    Message,
    PostgresClaims,
    RedisClaims,
    SqliteClaims,
    sync,
)
from sprocket.testing import Broker
from tests.client.deduplication.databases import DatabaseMissingError, Postgres, Redis


class Delivery:
    def __init__(self, number: int) -> None:
        self.topic = "Orders"
        self.message_id = f"id-{number}"


Store = Callable[[str], object]


@pytest.fixture(scope="module", params=["sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("claims") / "handled.db"
        yield lambda group: SqliteClaims(path, group=group)
        return
    kind: type[Redis] | type[Postgres] = Redis if request.param == "redis" else Postgres
    try:
        server = kind()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        server.start()
        url = server.url
        if kind is Redis:
            yield lambda group: RedisClaims(url, group=group)
        else:
            yield lambda group: PostgresClaims(url, group=group)


def test_copies_are_handled_once_by_all_members(store: Store) -> None:
    handled: list[tuple[str, int]] = []

    def handle(message: Delivery) -> None:
        handled.append((message.message_id, threading.get_ident()))

    with (
        sync.Deduplicator(store("billing")) as one,  # type: ignore[arg-type]  # one of three stores
        sync.Deduplicator(store("billing")) as other,  # type: ignore[arg-type]
        sync.Deduplicator(store("another")) as stranger,  # type: ignore[arg-type]
        ThreadPoolExecutor(8) as threads,
    ):
        members = [one.once(handle), other.once(handle)]
        list(threads.map(lambda number: members[number % 2](Delivery(number // 4)), range(40)))
        assert sorted(key for key, _ in handled) == sorted(f"id-{number}" for number in range(10))
        assert one.duplicates + other.duplicates == 30
        assert one.lost_claims == 0
        # The claims are of one group.
        stranger.once(handle)(Delivery(0))
        assert handled[-1] == ("id-0", threading.get_ident())  # in the thread of the caller


def test_the_store_remembers_after_a_restart(store: Store) -> None:
    calls: list[str] = []
    for _ in range(2):
        with sync.Deduplicator(store("restart")) as deduplicator:  # type: ignore[arg-type]
            deduplicator.once(lambda message: calls.append(message.message_id))(Delivery(1))
    assert calls == ["id-1"]


def test_an_error_of_the_handler_is_raised_and_frees_the_claim(tmp_path: Path) -> None:
    attempts: list[int] = []

    def handle(message: Delivery) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise LookupError("no such order")

    with sync.Deduplicator(SqliteClaims(tmp_path / "handled.db", group="g")) as deduplicator:
        once = deduplicator.once(handle)
        with pytest.raises(LookupError, match="no such order"):
            once(Delivery(1))
        once(Delivery(1))
        once(Delivery(1))
    assert len(attempts) == 2
    assert deduplicator.duplicates == 1


def test_a_claim_outlives_its_lease_while_the_handler_runs(tmp_path: Path) -> None:
    path = tmp_path / "handled.db"
    begun, finish = threading.Event(), threading.Event()
    calls: list[str] = []

    def slow(message: Delivery) -> None:
        begun.set()
        finish.wait(60)
        calls.append("slow")

    with (
        sync.Deduplicator(SqliteClaims(path, group="g", lease_s=0.3)) as one,
        sync.Deduplicator(SqliteClaims(path, group="g", lease_s=0.3)) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        first = threads.submit(one.once(slow), Delivery(1))
        assert begun.wait(60)
        second = threads.submit(other.once(lambda message: calls.append("other")), Delivery(1))
        with pytest.raises(TimeoutError):
            second.result(1.0)  # three leases: without renewal it would have handled the message
        finish.set()
        first.result(60)
        second.result(60)
    assert calls == ["slow"]
    assert (other.duplicates, one.lost_claims) == (1, 0)


class Journal:
    """Blocking store of an application."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.threads: set[str] = set()
        self.is_closed = False

    def contains(self, key: str) -> bool:
        self.threads.add(threading.current_thread().name)
        return key in self.keys

    def add(self, key: str) -> None:
        self.keys.add(key)

    def close(self) -> None:
        self.is_closed = True


def test_a_blocking_store_is_called_outside_the_loop() -> None:
    journal, calls = Journal(), list[str]()
    with sync.Deduplicator(journal) as deduplicator:
        for number in (1, 1, 2):
            deduplicator.once(lambda message: calls.append(message.message_id))(Delivery(number))
    assert calls == ["id-1", "id-2"]
    assert journal.keys == {"Orders/id-1", "Orders/id-2"}
    assert "sprocket-client" not in journal.threads
    assert journal.is_closed


def test_misuse_is_refused() -> None:
    with pytest.raises(IllegalArgument, match="pass a ClaimStore, or an object with contains and add"):
        sync.Deduplicator(object())  # type: ignore[arg-type]
    with pytest.raises(IllegalArgument, match="handler"):
        sync.Deduplicator().once("handler")  # type: ignore[arg-type]
    deduplicator = sync.Deduplicator()
    with pytest.raises(ClientError, match="use it inside `with`"):
        deduplicator.once(print)("message")
    deduplicator.close()


def test_a_consumer_handles_a_repeated_send_once(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("Repeated", 2)
    handled: list[bytes] = []
    with sync.connect(broker.namesrv) as mq:
        for number in (1, 1, 2, 2, 2):
            mq.producer().send(Message("Repeated", b"%d" % number, unique_key=f"order-{number}"))
        consumer = mq.consumer("repeated", "Repeated", consume_from=ConsumeFrom.FIRST)
        with sync.Deduplicator(SqliteClaims(tmp_path / "handled.db", group="repeated")) as deduplicator:
            handle_once = deduplicator.once(lambda message: handled.append(message.body))

            def count(message: sync.ReceivedMessage) -> None:
                handle_once(message)
                if len(handled) + deduplicator.duplicates == 5:
                    consumer.stop()

            consumer.run(count)
    assert sorted(handled) == [b"1", b"2"]
    assert deduplicator.duplicates == 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("sync-deduplication")) as running:
        yield running
