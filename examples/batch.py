"""Send and consume many messages at once.

``python examples/batch.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, ConsumeSettings, Message, ReceivedMessage, SendSettings


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        sent = await mq.producer().send_batch([Message("Readings", b"%d" % number) for number in range(50)])
        print("one request, 50 messages, first at offset", sent.queue_offset, "of queue", sent.queue.queue_id)

        # With auto-batch, messages sent at about the same time share a request. Each send has its own result.
        producer = mq.producer(settings=SendSettings(auto_batch=True))
        results = await asyncio.gather(*(producer.send(Message("Readings", b"%d" % n)) for n in range(50, 100)))
        print("50 sends,", len({result.message_id for result in results}), "results")

        settings = ConsumeSettings(consume_message_batch_max_size=32)
        consumer = mq.consumer("readers", "Readings", consume_from=ConsumeFrom.FIRST, settings=settings)
        readings: list[bytes] = []

        async def handle(messages: list[ReceivedMessage]) -> None:
            readings.extend(message.body for message in messages)
            print("handled", len(messages), "at once")
            if len(readings) == 100:
                consumer.stop()

        await consumer.run_batches(handle)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
