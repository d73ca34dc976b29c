"""A small shop for the notebooks: its messages are in the store of a real broker, which runs until the notebook ends.

To read your own messages, replace `store()` with the `storePathRootDir` of your broker.
"""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sprocket import ConsumeFrom, Message, ReceivedMessage, sync
from sprocket.testing import Broker

ORDERS = 200
UNPAYABLE = 4  # orders that billing cannot process: they are in %DLQ%billing
COUNTRIES = ("de", "fr", "it", "pl")
NOON_MS = 1_780_056_000_000  # 2026-05-29 12:00 UTC
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@cache
def broker() -> Broker:
    """Return the shop's broker, with all its messages."""
    running = _started()
    for topic in ("Orders", "Payments", "Clicks"):
        running.create_topic(topic)
    with sync.Producer("shop", running.namesrv) as producer:
        list(producer.send_many([order(number) for number in range(ORDERS)]))
        list(producer.send_many([payment(number) for number in range(ORDERS) if number % 10 != 9]))
        for click in clicks():
            producer.send(click)
        traces = _consume(running, "billing", _bill) + _consume(running, "audit", lambda message: True)
        list(producer.send_many([Message(TRACE_TOPIC, trace.encode()) for trace in traces]))
    return running


def store() -> str:
    """Return the shop's store directory."""
    return str(broker().store)


@cache
def mirror() -> str:
    """Return the store of another cluster with a copy of the orders: two are missing, and one is changed."""
    running = _started()
    running.create_topic("Orders")
    with sync.Producer("copy", running.namesrv) as producer:
        kept = [order(number) for number in range(ORDERS) if number not in (17, 42)]
        kept[5] = Message("Orders", b'{"order": 5, "amount": 0}', tags="new", keys="order-5")
        list(producer.send_many(kept))
    return str(running.store)


def order(number: int) -> Message:
    """Return an order: JSON, by web or by telephone."""
    content = {
        "order": number,
        "customer": f"c{number % 7}",
        "country": COUNTRIES[number % 4],
        "amount": 10 + number % 50,
        "items": [{"sku": f"s{number % 5}", "count": 1 + number % 3}],
    }
    channel = {"channel": "web" if number % 3 else "telephone", "clerk": f"clerk-{number % 2}"}
    return Message("Orders", json.dumps(content).encode(), tags="new", keys=f"order-{number}", properties=channel)


def payment(number: int) -> Message:
    """Return the payment of an order."""
    content = {"order": number, "method": "card" if number % 4 else "transfer", "amount": 10 + number % 50}
    return Message("Payments", json.dumps(content).encode(), tags=str(content["method"]), keys=f"order-{number}")


def clicks() -> list[Message]:
    """Return one click a second for five minutes of the browsers' clocks; two are sent minutes late."""
    seconds = [second for second in range(300) if second not in (10, 20)]
    seconds += [10, 20]
    return [
        Message("Clicks", json.dumps({"page": f"/{second % 3}", "at": NOON_MS // 1000 + second}).encode(), tags="click")
        for second in seconds
    ]


def _bill(message: ReceivedMessage) -> bool:
    """Return False for every fiftieth order, which cannot be paid."""
    return json.loads(message.body)["order"] % (ORDERS // UNPAYABLE) != 7


def _consume(running: Broker, group: str, work: Callable[[ReceivedMessage], bool]) -> list[str]:
    """Let `group` consume all orders.  Orders that `work` refuses become dead letters.

    Returns what RocketMQ's clients write into the trace topic if message tracing is on.
    """
    traces = []
    with sync.Consumer(group, ["Orders"], running.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for count, message in enumerate(consumer, 1):
            # As if each order took the group 20 ms (billing) or 5 ms (audit) longer than the previous one.
            pace_ms = 20 if group == "billing" else 5
            taken_ms = round(message.born_timestamp_ms) + pace_ms * (1 + json.loads(message.body)["order"])
            done = work(message)
            request, keys = f"{group}-{count}", " ".join(message.keys)
            before = ("SubBefore", taken_ms, "Region", group, request, message.message_id, 0, keys)
            after = ("SubAfter", request, message.message_id, 8, str(done).lower(), keys, 0, taken_ms, group)
            traces.append("".join("\x01".join(map(str, context)) + "\x02" for context in (before, after)))
            if done:
                consumer.ack(message)
            else:
                consumer.nack(message, -1)
            if count == ORDERS:
                return traces
    raise AssertionError("the broker stopped")


def _started() -> Broker:
    directory = Path(tempfile.mkdtemp(prefix="shop-"))
    running = Broker(directory, properties={"traceTopicEnable": "true"}, start_limit_s=60.0)
    running.start()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(running.stop)
    return running
