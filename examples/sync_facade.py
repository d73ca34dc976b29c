"""The blocking client, without an event loop: in a script, and in threads.

``python examples/sync_facade.py [name server]``: without an address it starts its own broker.
"""

import threading

from cluster import name_server

from sprocket import ConsumeFrom, Message, ReceivedMessage, sync


def main(namesrv: str) -> None:
    with sync.Producer("example", namesrv) as producer:
        for number in range(5):
            print("sent", producer.send(Message("Plain", b"%d" % number)).message_id)

    with sync.Consumer("plain", ["Plain"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for count, message in enumerate(consumer, 1):
            print("received", message.body.decode())
            consumer.ack(message)
            if count == 5:
                break

    # A handler runs in threads and may block.
    ended = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        print("handled", message.body.decode(), "in", threading.current_thread().name.rpartition("_")[0])
        ended.set()

    with sync.Producer("example", namesrv) as producer, sync.Consumer("plain", ["Plain"], namesrv) as consumer:
        worker = threading.Thread(target=consumer.run, args=(handle,), kwargs={"concurrency": 4})
        worker.start()
        producer.send(Message("Plain", b"work"))
        ended.wait()
        consumer.close()
        worker.join()

    with sync.Admin(namesrv) as admin:
        print("topics:", [topic for topic in admin(lambda aio: aio.topic_list()) if topic == "Plain"])


if __name__ == "__main__":
    with name_server() as address:
        main(address)
