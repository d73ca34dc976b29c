"""Servers that answer and give nothing, or send without an end: a task of a read over the wire ends with the reason."""

import socket
import threading
import time
from collections.abc import Sequence

import pytest

from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange
from spark.wire.cluster import Answer, WireCluster, WireSettings
from spark.wire.connection import Asked, ConnectionSettings, WireConnection
from spark.wire.pull import Puller, Subscription
from sprocket.client.errors import BrokerRefused
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.pending import RemotingTimeout

WANTED = QueueRange(QueueId("broker-a", "Flights", 3), 10, 90)


class Broker(WireCluster):
    """Gives the same answer to every request, as the member `broker_id` of its group."""

    answer: ReceivedResponse
    broker_id = 0
    rounds = 0

    def ask(
        self, broker_name: str, requests: Sequence[Asked], prefer: int = 0, retries: int | None = None
    ) -> list[Answer]:
        self.rounds += 1
        return [Answer(self.answer, self.broker_id, "10.0.0.1:10911") for _ in requests]


def offsets(following: int, end: int) -> dict[str, str]:
    return {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(end), "suggestWhichBrokerId": "0"}


@pytest.mark.parametrize(
    ("code", "fields", "broker_id", "reason"),
    [
        (ResponseCode.SYSTEM_BUSY, {}, 0, "is busy"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, offsets(10, 90), 0, "gives nothing"),
        (ResponseCode.SUCCESS, offsets(4, 90), 0, "gives nothing"),
        (ResponseCode.PULL_NOT_FOUND, offsets(10, 10), 1, "only up to 10"),
    ],
)
def test_a_broker_that_gives_nothing(code: int, fields: dict[str, str], broker_id: int, reason: str) -> None:
    pauses: list[float] = []
    broker = Broker(WireSettings(("10.0.0.1:9876",)), pause=pauses.append)
    broker.answer = ReceivedResponse(code=code, opaque=1, ext_fields=fields)
    broker.broker_id = broker_id
    puller = Puller(broker, Subscription(), lambda lost: pytest.fail(f"{lost} is not lost"))
    with pytest.raises(
        BrokerRefused, match=rf"10\.0\.0\.1:10911 .*broker-a/Flights/3 at 10: .*{reason}.*read again later"
    ):
        list(puller.pull("broker-a", [WANTED]))
    assert broker.rounds == len(pauses) + 1
    assert sum(pauses) > 3


def test_a_server_that_sends_and_never_ends() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1 << 16)
                accepted.sendall((1 << 16).to_bytes(4, "big"))
                while not stop.is_set():
                    accepted.sendall(b"\0")
                    time.sleep(0.01)

        thread = threading.Thread(target=drip)
        thread.start()
        settings = ConnectionSettings(timeout_s=0.2)
        try:
            with WireConnection(f"127.0.0.1:{server.getsockname()[1]}", settings) as connection:
                with pytest.raises(RemotingTimeout, match=r"1 answers are not whole in 2 s|nothing came for 0\.2 s"):
                    connection.invoke_all([(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)])
                assert connection.is_closed
        finally:
            stop.set()
            thread.join()
