"""Transactions over gRPC: commit, roll back, and the checker's answer for an open one."""

import asyncio

import sprocket
from sprocket import Message, ReceivedMessage, TransactionState
from tests.proxy.rig import Rig, create_topic


async def test_only_committed_messages_arrive_and_the_checker_decides_open_ones(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "TRANSACTION")
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-transaction", topic)
        await consumer.receive(1, wait_s=0.1)
        async with mq.transaction_producer("makers", checker=check) as producer:
            for state in TransactionState:
                await producer.send_in_transaction(Message(topic, state.name.encode()), lambda _, __, s=state: s)
            found: set[bytes] = set()
            async with asyncio.timeout(40):
                while len(found) < 2:
                    for message in await consumer.receive(4, wait_s=2):
                        found.add(message.body)
                        await message.ack()
    assert found == {b"COMMIT", b"UNKNOWN"} and b"UNKNOWN" in asked and b"ROLLBACK" not in asked
