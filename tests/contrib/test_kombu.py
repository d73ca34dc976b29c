"""Queues and exchanges of kombu over a real broker, as applications use them."""

import datetime
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, IllegalArgument, Message, sync
from sprocket.testing import Broker
from sprocket_cli.processes.tls_folder import HOSTS, TlsFolder
from tests.contrib.redelivery import lost_renewals

kombu = pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

import_module("sprocket.contrib.kombu")  # makes the scheme known


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kombu")) as broker:
        yield broker


def connection(servers: Broker, **options: object) -> "kombu.Connection":
    return kombu.Connection(f"sprocket://{servers.namesrv}", transport_options=options)


class Drain:
    """A consumer of one queue: what it got, and what was not acknowledged yet."""

    def __init__(self, conn: "kombu.Connection", queue: "kombu.Queue", prefetch: int = 0) -> None:
        self.got: list[object] = []
        self.held: list[kombu.Message] = []
        self._conn = conn
        self._consumer = kombu.Consumer(conn, [queue], callbacks=[self._on_message], prefetch_count=prefetch or None)

    def _on_message(self, body: object, message: "kombu.Message") -> None:
        self.got.append(body)
        self.held.append(message)

    def until(self, count: int, within_s: float = 60.0) -> list[object]:
        deadline = time.monotonic() + within_s
        with self._consumer:
            while len(self.got) < count and time.monotonic() < deadline:
                try:
                    self._conn.drain_events(timeout=max(deadline - time.monotonic(), 0.01))
                except TimeoutError:
                    break
        return self.got


def publish(conn: "kombu.Connection", queue: "kombu.Queue", *bodies: object, **properties: object) -> None:
    producer = conn.Producer()
    for body in bodies:
        producer.publish(body, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue], **properties)


def test_what_is_not_acknowledged_comes_again_when_the_connection_closes(servers: Broker) -> None:
    queue = kombu.Queue("again", kombu.Exchange("again"), "again")
    with connection(servers) as first:
        publish(first, queue, *range(5))
        drain = Drain(first, queue)
        assert sorted(drain.until(5)) == [0, 1, 2, 3, 4]  # type: ignore[type-var]
        for message in drain.held[:3]:
            message.ack()
        left = {message.payload for message in drain.held[3:]}
    with connection(servers) as second:
        drain = Drain(second, queue)
        assert set(drain.until(2)) == left
        assert all(message.delivery_info["redelivered"] for message in drain.held)
        for message in drain.held:
            message.ack()
    with connection(servers) as third, closing(third.SimpleQueue(queue)) as empty, pytest.raises(empty.Empty):
        empty.get(timeout=2)


def test_a_prefetch_count_bounds_what_is_held(servers: Broker) -> None:
    queue = kombu.Queue("few", kombu.Exchange("few"), "few")
    with connection(servers) as conn:
        publish(conn, queue, *range(10))
        drain = Drain(conn, queue, prefetch=2)
        drain.until(2)
        drain.until(3, within_s=2)
        assert len(drain.got) == 2
        drain.held[0].ack()
        drain.until(3)
        assert len(drain.got) == 3


@pytest.mark.parametrize("prefetch", [1, 4])
def test_a_fast_consumer_gets_what_comes_after_its_burst(servers: Broker, prefetch: int) -> None:
    name = f"burst{prefetch}"
    queue = kombu.Queue(name, kombu.Exchange(name), name)
    got: list[object] = []

    def acknowledge(body: object, message: "kombu.Message") -> None:
        got.append(body)
        message.ack()

    with connection(servers) as conn, kombu.Consumer(conn, [queue], callbacks=[acknowledge], prefetch_count=prefetch):
        for burst in (range(300), range(300, 301), range(301, 601), range(601, 602)):
            publish(conn, queue, *burst)
            while len(got) < burst.stop:
                conn.drain_events(timeout=60)
    assert sorted(got) == list(range(602))  # type: ignore[type-var]


def test_a_larger_prefetch_count_holds_at_once(servers: Broker) -> None:
    queue = kombu.Queue("grows", kombu.Exchange("grows"), "grows")
    got: list[object] = []
    with connection(servers) as conn:
        publish(conn, queue, *range(8))
        with kombu.Consumer(
            conn, [queue], callbacks=[lambda body, message: got.append(body)], prefetch_count=2
        ) as consumer:
            while len(got) < 2:
                conn.drain_events(timeout=60)
            consumer.qos(prefetch_count=8)
            while len(got) < 8:
                conn.drain_events(timeout=60)
    assert sorted(got) == list(range(8))  # type: ignore[type-var]


def test_a_worker_that_waits_longer_than_the_visibility_timeout_keeps_its_message(servers: Broker) -> None:
    queue = kombu.Queue("long", kombu.Exchange("long"), "long")
    with connection(servers, visibility_timeout=2) as conn, connection(servers, visibility_timeout=2) as other:
        publish(conn, queue, "work")
        drain = Drain(conn, queue)
        drain.until(1)
        second = Drain(other, queue)
        assert second.until(1, within_s=6) == []
        drain.held[0].ack()


def test_a_message_in_work_that_is_delivered_again_is_not_given_twice(
    servers: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kombu.Queue("held", kombu.Exchange("held"), "held")
    delivered_again = lost_renewals(monkeypatch)
    with connection(servers, visibility_timeout=2) as conn, connection(servers, visibility_timeout=2) as other:
        publish(conn, queue, "first")
        drain = Drain(conn, queue)
        drain.until(1)
        with drain._consumer:
            assert delivered_again.wait(60)
            publish(conn, queue, "last")
            drain.until(2)
        assert drain.got == ["first", "last"]
        for message in drain.held:
            message.ack()
        assert Drain(other, queue).until(1, within_s=6) == []


def test_every_queue_of_a_fanout_exchange_gets_a_copy_from_its_declaration_on(servers: Broker) -> None:
    exchange = kombu.Exchange("news", "fanout")
    with connection(servers, topic_queue_nums=1) as conn:  # more queues promise no order
        early = kombu.Queue("reader-early", exchange, auto_delete=True)
        late = kombu.Queue("reader-late", exchange, auto_delete=True)
        publish(conn, early, "one")
        publish(conn, late, "two")
        assert Drain(conn, early).until(2) == ["one", "two"]
        assert Drain(conn, late).until(1) == ["two"]


def test_messages_wait_until_their_eta(servers: Broker) -> None:
    queue = kombu.Queue("later", kombu.Exchange("later"), "later")
    at = time.time() + 3
    eta = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + "+00:00"
    with connection(servers) as conn:
        publish(conn, queue, "late", headers={"eta": eta, "id": "task-1"})
        publish(conn, queue, "now")
        assert Drain(conn, queue).until(2) == ["now", "late"]
    assert time.time() >= at - 1


def test_higher_priorities_come_first(servers: Broker) -> None:
    with connection(servers) as conn:
        queue = conn.SimpleQueue("urgent", queue_opts={"max_priority": 9})
        with closing(queue):
            for priority in (1, 9, 5):
                queue.put(priority, priority=priority)
            got = []
            for _ in range(3):
                message = queue.get(timeout=30)
                got.append(message.payload)
                message.ack()
    assert got == [9, 5, 1]


def test_an_operator_finds_a_task_by_its_id_and_foreign_messages_go_to_the_dead_letters(servers: Broker) -> None:
    queue = kombu.Queue("mixed", kombu.Exchange("mixed"), "mixed")
    with connection(servers) as conn, sync.connect(servers.namesrv) as mq:
        publish(conn, queue, "ours", headers={"id": "task-77"})
        mq.producer().send(Message("mixed", b"not kombu's", tags="mixed"))
        drain = Drain(conn, queue)
        drain.until(1)
        assert drain.until(2, within_s=5) == ["ours"]
        drain.held[0].ack()
        [dead] = mq.simple_consumer("reader", "%DLQ%mixed", consume_from=ConsumeFrom.FIRST).receive(wait_s=30)
        assert dead.body == b"not kombu's"


def test_a_purge_skips_what_waits_and_a_size_tells_how_much_that_is(servers: Broker) -> None:
    with connection(servers) as conn, closing(conn.SimpleQueue("purged")) as queue:
        for number in range(7):
            queue.put(number)
        assert len(queue) == 7
        assert queue.clear() == 7
        with pytest.raises(queue.Empty):
            queue.get(timeout=2)
        queue.put("after")
        assert queue.get(timeout=30).payload == "after"


def test_wrong_options_exchanges_and_addresses_are_refused_in_words(servers: Broker) -> None:
    with pytest.raises(IllegalArgument, match="visibilty_timeout is unknown; there are"):
        connection(servers, visibilty_timeout=3).connect()
    with connection(servers) as conn, pytest.raises(conn.channel_errors, match="type 'headers'; use direct"):
        kombu.Exchange("h", "headers").declare(channel=conn.default_channel)
    with connection(servers) as conn, pytest.raises(conn.channel_errors, match="NOT_FOUND - no queue 'absent'"):
        kombu.Queue("absent").queue_declare(passive=True, channel=conn.default_channel)
    nobody = kombu.Connection("sprocket://127.0.0.1:1")
    with pytest.raises(nobody.connection_errors):
        nobody.connect()


def test_an_account_is_needed_where_access_control_is(tmp_path: Path) -> None:
    properties = {
        "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"secret"}',
        "authorizationEnabled": "true",
    }
    with Broker(tmp_path, properties=properties) as guarded:
        allowed = kombu.Connection(f"sprocket://root:secret@{guarded.namesrv}")
        with allowed as conn, closing(conn.SimpleQueue("guarded")) as queue:
            queue.put("hello")
            message = queue.get(timeout=30)
            message.ack()
            assert message.payload == "hello"
        denied = kombu.Connection(f"sprocket://root:wrong@{guarded.namesrv}")
        with denied as conn, pytest.raises(conn.connection_errors + conn.channel_errors):
            conn.SimpleQueue("guarded").put("hello")


def test_tls_and_a_namespace(tmp_path: Path) -> None:
    keys, stranger = TlsFolder(tmp_path / "tls"), TlsFolder(tmp_path / "stranger")
    for folder in (keys, stranger):
        folder.create(HOSTS, datetime.datetime.now(datetime.UTC), 30)
    properties = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(keys.path / "broker.pem"),
        "tls.server.keyPath": str(keys.path / "broker.key"),
    }
    with Broker(tmp_path / "broker", properties=properties) as broker, sync.connect(broker.namesrv) as mq:
        trusted = {"ca_certs": str(keys.authority_file)}
        own = kombu.Connection(f"sprocket://{broker.namesrv}/shop", ssl=trusted)
        with own as conn, closing(conn.SimpleQueue("orders")) as queue:
            queue.put("hello")
            message = queue.get(timeout=30)
            message.ack()
            assert message.payload == "hello"
            assert "shop%orders" in mq.admin.topic_list()
        other = kombu.Connection(f"sprocket://{broker.namesrv}/bank", ssl=trusted)
        with other as conn, closing(conn.SimpleQueue("orders")) as queue, pytest.raises(queue.Empty):
            queue.get(timeout=2)
        wrong = kombu.Connection(f"sprocket://{broker.namesrv}", ssl={"ca_certs": str(stranger.authority_file)})
        with pytest.raises(wrong.connection_errors):
            wrong.connect()


def test_what_was_acknowledged_just_before_the_end_is_not_delivered_again(
    servers: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sprocket.contrib.kombu.channel._ACK_PAUSE_S", 60.0)
    queue = kombu.Queue("last-words", kombu.Exchange("last-words"), routing_key="last-words")
    with connection(servers) as conn:
        publish(conn, queue, *range(5))
        drain = Drain(conn, queue)
        drain.until(5)
        for message in drain.held:
            message.ack()
    with connection(servers) as conn:
        # What a connection that closes gives back comes again after a second.
        assert Drain(conn, queue).until(1, within_s=2.5) == []


def test_a_killed_broker_repeats_nothing_to_a_consumer_that_lives(tmp_path: Path) -> None:
    queue = kombu.Queue("steady", kombu.Exchange("steady"), routing_key="steady")
    with Broker(tmp_path) as servers, connection(servers, visibility_timeout=2) as conn:
        publish(conn, queue, *range(6))
        drain = Drain(conn, queue)
        drain.until(6)
        servers.kill()
        for message in drain.held[:3]:
            message.ack()  # the broker does not hear of it
        time.sleep(2)  # what is held is lost by now
        servers.start()
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=6)
        publish(conn, queue, "later", headers={"eta": later.isoformat()})
        assert sorted(drain.until(7), key=str) == [*range(6), "later"]
        for message in drain.held[3:]:
            message.ack()
    # The acknowledgements of the second delivery count.
    with Broker(tmp_path) as servers, connection(servers) as conn:
        assert Drain(conn, queue).until(1, within_s=3) == []
