"""The blocking client, without an event loop: in a script, and in threads.

``python examples/sync_facade.py [name server]``: without an address it starts its own broker.
"""

import threading

from cluster import name_server

from sprocket import ConsumeFrom, Message, sync


def main(namesrv: str) -> None:
    with sync.connect(namesrv) as mq:
        for number in range(5):
            print("sent", mq.producer().send(Message("Plain", b"%d" % number)).message_id)

        for count, message in enumerate(mq.consumer("plain", "Plain", consume_from=ConsumeFrom.FIRST), 1):
            with message.process():
                print("received", message.body.decode())
            if count == 5:
                break

        # A handler runs in threads and may block.
        worker = mq.consumer("plain-workers", "PlainWork", consume_from=ConsumeFrom.FIRST)

        def handle(message: sync.ReceivedMessage) -> None:
            print("handled", message.body.decode(), "in", threading.current_thread().name.rpartition("_")[0])
            worker.stop()

        mq.producer().send(Message("PlainWork", b"work"))
        worker.run(handle, concurrency=4)

        print("topics:", [topic for topic in mq.admin.topic_list() if topic == "Plain"])


if __name__ == "__main__":
    with name_server() as address:
        main(address)
