"""The program of a storm with the C++ client, through the Python bindings of the wheel `rocketmq`.

``python storm.py <folder of the wheel> <name servers> <run> <period ms> <kind>...``; orders and lines are those of
Java's `compat.storm.Storm`.  A received message says nothing of its broker here, so each broker of the cluster has a
cluster name of its own, which the broker writes into every message; a sent one says nothing of its queue.
"""

import os
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])

from rocketmq.client import Message, Producer, PushConsumer

BATCH = 8
SHARDS = 16
HANDLER_S = 0.003
_lock = threading.Lock()


def micros() -> int:
    return time.time_ns() // 1_000


def line(*fields: object) -> None:
    text = "\t".join(" ".join(str(field).split()) for field in fields)
    with _lock:
        print(text, flush=True)


class Traffic:
    """One kind: its producer, its consumers, and what it writes down."""

    def __init__(self, name_servers: str, run: str, kind: str) -> None:
        self.kind = kind
        self.topic, self.group, self.run = f"S-{run}-{kind}", f"SG-{run}-{kind}", run
        self._name_servers = name_servers
        self._consumers: dict[str, PushConsumer] = {}
        self._producer = Producer(f"{self.group}-producer")

    def begin(self) -> None:
        self._producer.set_namesrv_addr(self._name_servers)
        self._producer.start()

    def join(self, name: str) -> None:
        """One more consumer of the group."""
        consumer = PushConsumer(self.group, orderly=self.kind == "orderly")
        consumer.set_namesrv_addr(self._name_servers)
        consumer.set_instance_name(f"{self.run}-{self.kind}-{name}")
        consumer.set_thread_count(2)
        expression = "A || C" if self.kind == "tag-filter" else "*"
        consumer.subscribe(self.topic, lambda message: self._got(name, message), expression)
        consumer.start()
        self._consumers[name] = consumer

    def leave(self, name: str) -> None:
        self._consumers[name].shutdown()

    def _got(self, name: str, message) -> None:
        began = micros()
        if self.kind == "orderly":
            time.sleep(HANDLER_S)
        broker, key = message.get_property("CLUSTER").decode(), message.body.decode()
        place = broker, message.queue_id, message.queue_offset
        line("GOT", self.kind, key, began, micros(), *place, name, message.reconsume_times, self.topic)

    def _key(self, count: int) -> str:
        return f"{self.kind}-{count:06}"

    def _message(self, count: int) -> Message:
        message = Message(self.topic)
        message.set_body(self._key(count))
        message.set_keys(self._key(count))
        message.set_tags("ABC"[count % 3] if self.kind == "tag-filter" else "T")
        if self.kind == "delay-level":
            message.set_delay_time_level(1 + count % 2)
        return message

    def send(self, count: int) -> None:
        """Message number `count`, or batch; what became of it is written down."""
        began = micros()
        counts = range(count * BATCH, count * BATCH + BATCH) if self.kind == "batch" else [count]

        def sent(result) -> None:
            for one in counts:
                if result.status == 0:
                    line("SENT", self.kind, self._key(one), began, micros(), "", -1, -1)
                else:
                    unsure(result.status)

        def unsure(reason: object) -> None:
            for one in counts:
                line("UNSURE", self.kind, self._key(one), began, micros(), reason)

        try:
            if self.kind == "oneway":
                self._producer.send_oneway(self._message(count))
                unsure("oneway")
            elif self.kind == "async":
                self._producer.send_async(self._message(count), sent, unsure)
            elif self.kind == "batch":
                sent(self._producer.send_batch([self._message(one) for one in counts]))
            elif self.kind == "orderly":
                sent(self._producer.send_orderly(self._message(count), count % SHARDS, 0))
            else:
                sent(self._producer.send_sync(self._message(count)))
        except Exception as failure:
            unsure(failure)


class Program:
    """All kinds, and the orders."""

    def __init__(self, name_servers: str, run: str, period_ms: int, kinds: list[str]) -> None:
        self._traffic = [Traffic(name_servers, run, kind) for kind in kinds]
        self._period_s = period_ms / 1000
        self._is_sending = True

    def run(self) -> None:
        self._at_once("ready", Traffic.begin)
        for order in sys.stdin:
            self._obey(order.strip())
        os._exit(0)

    def _obey(self, order: str) -> None:
        if order == "start":
            self._at_once("started", lambda each: each.join("first"))
        elif order == "send":
            for each in self._traffic:
                threading.Thread(target=self._send_on, args=[each], daemon=True).start()
        elif order == "join":
            self._at_once("joined", lambda each: each.join("second"))
        elif order == "leave":
            self._at_once("left", lambda each: each.leave("first"))
        elif order == "stop":
            self._is_sending = False
            line("PHASE", "stopped", micros())
        elif order == "exit":
            os._exit(0)

    def _at_once(self, phase: str, step) -> None:
        def take(each: Traffic) -> None:
            try:
                step(each)
            except Exception as failure:
                line("TROUBLE", each.kind, repr(failure))

        threads = [threading.Thread(target=take, args=[each]) for each in self._traffic]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        line("PHASE", phase, micros())

    def _send_on(self, each: Traffic) -> None:
        count = 0
        while self._is_sending:
            each.send(count)
            count += 1
            time.sleep(self._period_s)


if __name__ == "__main__":
    Program(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]).run()
