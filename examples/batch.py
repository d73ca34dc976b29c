"""Send and consume many messages at once.

``python examples/batch.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, ConsumeSettings, Message, Producer, ReceivedMessage, SendSettings


async def main(namesrv: str) -> None:
    async with Producer("example", namesrv) as producer:
        sent = await producer.send_batch([Message("Readings", b"%d" % number) for number in range(50)])
        print("one request, 50 messages, first at offset", sent.queue_offset, "of queue", sent.queue.queue_id)

    # With auto-batch, messages sent at about the same time share a request. Each send has its own result.
    async with Producer("example", namesrv, settings=SendSettings(auto_batch=True)) as producer:
        results = await asyncio.gather(*(producer.send(Message("Readings", b"%d" % n)) for n in range(50, 100)))
        print("50 sends,", len({result.message_id for result in results}), "results")

    total = 0
    settings = ConsumeSettings(consume_message_batch_max_size=32)
    consumer = Consumer("readings", ["Readings"], namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)
    async with consumer:

        async def handle(messages: list[ReceivedMessage]) -> None:
            nonlocal total
            total += len(messages)
            print("handled", len(messages), "at once")
            if total == 100:
                all_handled.set()

        all_handled = asyncio.Event()
        running = asyncio.create_task(consumer.run_batches(handle))
        await all_handled.wait()
    await running


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
