"""Transactions change hands: what Apache RocketMQ left open ends here, and the reverse, each exactly one way."""

import asyncio
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, ReceivedMessage, TransactionProducer, TransactionState
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.transaction_lookup import open_transactions
from sprocket.client.transaction import Local
from tests.compat import maven, wire
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.directories.turns import ApacheBroker, properties

TOPIC, GROUP = "Payments", "Cashiers"
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
# RocketMQ writes op messages and offsets seconds later.
_SETTLED_S = 5.0
_WAIT_S = 60.0
# No producer is asked while a broker must leave a transaction open.
QUIET = {"transactionTimeOut": "3600000"}
ASKING = {"transactionCheckInterval": "4000", "transactionTimeOut": "1000"}


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"transactions of Apache RocketMQ: {missing}")


def outcome(state: TransactionState) -> Local:
    return lambda message, transaction_id: state


async def prepare(cluster: Cluster, name: str) -> None:
    """One that is committed, one that is rolled back, and three that stay open."""
    outcomes = {"commit": COMMIT, "rollback": ROLLBACK}
    async with TransactionProducer(GROUP, cluster.name_server_address, checker=lambda _: UNKNOWN) as producer:
        for kind in ("commit", "rollback", "later-1", "never", "later-2"):
            local = outcome(outcomes.get(kind, UNKNOWN))
            await producer.send_in_transaction(Message(TOPIC, f"{name}-{kind}".encode()), local)
    await asyncio.sleep(_SETTLED_S)
    async with asyncio.timeout(_WAIT_S):
        while await unresolved(cluster) > 3:
            await asyncio.sleep(0.2)
    assert await unresolved(cluster) == 3


async def unresolved(cluster: Cluster) -> int:
    async with AdminClient([cluster.name_server_address]) as admin:
        return len(await open_transactions(admin))


async def resolve(cluster: Cluster, asked: list[str]) -> None:
    """Answer the broker's questions until nothing is open."""

    def checker(message: ReceivedMessage) -> TransactionState:
        body = message.body.decode()
        asked.append(body)
        return ROLLBACK if body.endswith("never") else COMMIT

    async with TransactionProducer(GROUP, cluster.name_server_address, checker=checker), asyncio.timeout(_WAIT_S):
        while await unresolved(cluster):
            await asyncio.sleep(0.2)
    await asyncio.sleep(_SETTLED_S)


async def delivered(cluster: Cluster, name: str, wanted: int) -> list[str]:
    bodies = []
    async with Consumer(name, [TOPIC], cluster.name_server_address, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(wanted):
            message = await asyncio.wait_for(anext(consumer), _WAIT_S)
            bodies.append(message.body.decode())
            await consumer.ack(message)
    end = sum(
        int(
            wire.invoke(cluster.brokers[0].address, wire.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(n)}).fields[
                "offset"
            ]
        )
        for n in range(2)
    )
    assert end == wanted, "delivered more than once"
    return sorted(bodies)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kinds", [(ApacheBroker, SprocketCluster), (SprocketCluster, ApacheBroker)])
async def test_open_transactions_change_hands(
    java: None, tmp_path: Path, kinds: tuple[type[Cluster], type[Cluster]]
) -> None:
    leaves, takes = kinds
    store = properties(tmp_path / "store")
    with leaves(tmp_path / "first", properties=store | QUIET) as cluster:
        wire.create_topic(cluster.brokers[0].address, TOPIC, 2)
        await prepare(cluster, "first")
        assert await delivered(cluster, "early", 1) == ["first-commit"]
    asked: list[str] = []
    with takes(tmp_path / "second", properties=store | ASKING) as cluster:
        assert await unresolved(cluster) == 3
        await resolve(cluster, asked)
        assert await delivered(cluster, "late", 3) == ["first-commit", "first-later-1", "first-later-2"]
    assert set(asked) == {"first-later-1", "first-later-2", "first-never"}
    with leaves(tmp_path / "third", properties=store | ASKING) as cluster:
        # Who left them open finds nothing to ask about any more.
        asked.clear()
        await resolve(cluster, asked)
        assert await delivered(cluster, "last", 3) == ["first-commit", "first-later-1", "first-later-2"]
    assert asked == []
