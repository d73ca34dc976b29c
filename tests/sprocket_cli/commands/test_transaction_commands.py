"""`sprocket transaction list` against a running broker."""

import json
from uuid import uuid4

from sprocket import Message, TransactionProducer, TransactionState
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.programs import run


def listed(cluster: Cluster, *flags: str) -> str:
    ended = run(cluster.folder, "transaction", "list", *flags, "-n", cluster.namesrv)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def test_open_transactions_are_listed_until_they_end(cluster: Cluster) -> None:
    topic, states = f"T{uuid4().hex}", iter((TransactionState.UNKNOWN, TransactionState.COMMIT))
    async with TransactionProducer("tellers", cluster.namesrv, checker=lambda _: TransactionState.UNKNOWN) as producer:
        results = [await producer.send_in_transaction(Message(topic, b"x"), lambda *_: next(states)) for _ in range(2)]
    (shown,) = json.loads(listed(cluster, "-t", topic, "--json"))
    assert (shown["topic"], shown["group"], shown["messageId"]) == (topic, "tellers", results[0].message_id)
    assert (shown["queueOffset"], shown["queueId"]) == (results[0].queue_offset, results[0].queue.queue_id)
    head, row = listed(cluster, "--topic", topic).splitlines()
    assert head.split()[:4] == ["broker", "topic", "queue", "group"]
    assert results[0].message_id in row
    assert listed(cluster, "--group", "nobody", "--json").strip() == "[]"
