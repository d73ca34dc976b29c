"""Writer of docs/compatibility-clients.md, from the tables that the storm tests use.

``python -m tests.compat.storms.matrix_page docs/compatibility-clients.md``
"""

import sys
from pathlib import Path

from tests.compat.proxies import proxy_clients
from tests.compat.storms.clients import CPP, GO, JAVA, MIXED, Client
from tests.compat.storms.kinds import KINDS, Kind

_HEAD = """\
# Clients

`python -m tests.compat.storms.matrix_page docs/compatibility-clients.md` writes this page, and a test compares it.
Every cell that says "passes" is a test of `test_storm_java.py`, `test_storm_go.py` or `test_storm_cpp.py` in
`tests/compat/storms`.

Each kind of message and each way to consume runs in a storm. Two brokers use SYNC_FLUSH. A producer and a consumer work
all the time. Meanwhile:

1. A second consumer joins the group.
2. One broker is stopped (SIGTERM) and started.
3. The other broker is killed (SIGKILL) and started.
4. The first consumer leaves.

All kinds of a client run side by side. `tests/checkers` then checks the whole history:

- Each acknowledged message was delivered, from exactly the broker, queue and offset in the send response.
- No message was delivered that nobody sent, that a filter excludes, or that was rolled back.
- A message was redelivered only after one of these events, and only if its offset could not be stored yet.
- Orderly: each queue and each key was delivered in order, and no message was skipped.
- Orderly: a queue never had two handlers at a time, except for 32 s after its broker's restart. Locks are in
  memory, as in RocketMQ.
- Delays: no message was early. Both forms of delay may deliver twice after the SIGKILL, because the broker then
  writes the message again.
- Transactions: each committed message was delivered, no rolled back one was, and the broker checked each undecided one.
- Requests: each got its own reply, or an error. Requests that no event touched got the reply.
- Broadcasting: each consumer got all messages.
- Retry: each attempt was counted, and exactly the poisoned messages became dead letters.
- Both consumers and both brokers took part, also after each event.

To test the tests, run them against Apache RocketMQ 5.3.3 with `COMPAT_AGAINST=apache`.

Java's client 5.5.0 passes the scenarios of `tests/compat/clients/test_java_client.py`, as 4.9.8 and 5.3.3 do. With
`COMPAT_APACHE_VERSION=5.5.0` the servers and tools beside ours are those of 5.5.0. The tests of replication, upgrades,
clients and monitoring pass with it. Those of tools find two differences of form, which are 5.5.0's own: a fourth
column in `queryMsgByKey`, and the text of `topicRoute`. `tests/compat/mqadmin/test_lite.py` always runs mqadmin of
5.5.0: its commands for lite topics and ours print the same lines.

"""

_TAIL = """
## Both families in one group

In `tests/compat/storms/test_storm_mixed.py`, Java 5.3.3 sends and consumes, and `sprocket`'s own client joins and
stays. At the same time another storm does the reverse. Kinds: {mixed}.
Orderly consumers of both families lock the same queues. Each family replies to requests of the other.

## Behaviour of the clients themselves
"""


def page() -> str:
    """Return the whole page."""
    clients = [*JAVA, GO, CPP]
    lines = ["| Kind | What | " + " | ".join(f"{each.name} {each.version}" for each in clients) + " |"]
    lines.append("|---" * (len(clients) + 2) + "|")
    lines += [_row(kind, clients) for kind in KINDS]
    notes = [f"- {GO.name} {GO.version}, `{kind}`: {note}." for kind, note in GO.notes.items()]
    tail = _TAIL.format(mixed=", ".join(f"`{kind}`" for kind in MIXED))
    return _HEAD + "\n".join(lines) + "\n" + _grpc() + tail + "\n" + "\n".join([*notes, _CPP]) + "\n" + _SUITES


def _grpc() -> str:
    """Return the part about the newer clients, which speak gRPC."""
    rows = [
        ("Java", proxy_clients.java_version(), proxy_clients.JAVA_SCENARIOS),
        ("Python", proxy_clients.PYTHON_CLIENT.partition("==")[2], proxy_clients.PYTHON_SCENARIOS),
        ("Go", proxy_clients.go_version(), proxy_clients.GO_SCENARIOS),
        ("Node", proxy_clients.NODE_CLIENT.rpartition("@")[2], proxy_clients.NODE_SCENARIOS),
    ]
    table = [f"| {name} | {version} | {', '.join(scenarios)} |" for name, version, scenarios in rows]
    return _GRPC + "\n".join(table) + "\n" + _GRPC_NOTES


_GRPC = """
## Clients that speak gRPC

They pass these scenarios of `tests/compat/proxies/test_proxy_clients.py` at Sprocket's proxy:

| Client | Version | Scenarios |
|---|---|---|
"""
_GRPC_NOTES = """
The scenarios `lite` check the order of each lite topic, also after a failed message, and that nothing comes of lite
topics that the client did not subscribe. `lite-exclusive` checks that the last subscriber has a lite topic, and that
the other one hears of it. Java 5.2.0 is the newest on Maven Central in November 2026.
"""


_CPP = """\
- C++: each kind has passed, but not in every run. After a broker was killed, a client instance sometimes stops sending
  heartbeats and pulls. Of seven kinds, none had this in one run, two in another. We did not try whether it happens with
  RocketMQ too. `pytest -m slow tests/compat/storms/test_storm_cpp.py` runs these tests; `make test` does not.
- C++: a received message names no broker, so each broker gets its own cluster name. The send response names no queue,
  so offsets are compared only among deliveries. `rocketmq-client-python` 2.0.0 lacks the library that it calls."""


_SUITES = """
## Other people's suites and tools

RocketMQ's own integration tests run against a name server and three brokers of Sprocket. `pytest -m slow
tests/compat/clients/test_apache_suite.py` fetches them from Maven Central (`rocketmq-test` 5.5.0). It replaces the one
class that starts servers. Where the tests inspect objects inside a broker, it requests the same figures over the wire.

| What | Outcome |
|---|---|
| module `test` of RocketMQ 5.3.3: sends, consumers, pop, offsets, recall, static topics, TLS | passes but for: |
| `LagCalculationIT.testEstimateLag`, `OffsetNotFoundIT` | not applicable: they inspect a broker in their own process |
| `OffsetResetForPopIT`, two tests | pass without their check of a broker's order table |
| `BatchSendIT.testBatchSend_SysInnerBatch` | passes, but an empty queue of a BatchCQ topic starts at 0, not -1 |
| `StaticTopicIT.testRemappingAndClear`, `CreateAndUpdateTopicIT` | not applicable: they use a broker's objects |
| `PopPriorityIT` of 5.5.0 | passes |
| gRPC of 5.5.0 (`GrpcBaseIT`), at a proxy of Sprocket | passes |
| DLedger, broker container | not run: Sprocket does not have these servers |
| controller | not run: it starts RocketMQ's classes; `test_controllers.py` has its brokers under our controllers |
| rocketmq-e2e, Java, remoting client 4.9.3, with one broker | passes, `PushConsumerRetryTest` not always |
| rocketmq-e2e, Java, gRPC client 5.0.3, `sprocket standalone --proxy` | passes, 119 tests |
| rocketmq-e2e, Go, gRPC client of 2023-03, the same | passes, 6 tests |
| rocketmq-e2e, Spring (starter 2.2.3) | passes, 11 tests; `DelayMessageTest` not with a topic that is new |
| rocketmq-exporter 0.0.3 | works, with sizes by topic and group; `test_monitors.py` sends its requests |
| rocketmq-dashboard 1.0.0 | all pages work but those of ACL, not tried; `test_monitors.py` sends their requests |
| rocketmq-dashboard 2.1.1 | the pages from clusters to settings and dead letters work; traces and ACL not tried |

A consumer of a new group requests its offset. If the broker responds that there is none, the consumer requests the
end of the queue, and skips messages that arrive in between. For this reason, tests that send right after `start()`
were seen to fail on a busy machine: `PushConsumerRetryTest`, `TagMessageWithMulConsumerIT` and
`OneConsumerMulTopicIT`. The latter two have also failed with RocketMQ's own brokers. In a queue that never had a
message, our broker now responds with offset 0 ([refusals.md](refusals.md#offset-of-a-new-group)).
"""


def _row(kind: Kind, clients: list[Client]) -> str:
    return f"| `{kind.name}` | {kind.title} | " + " | ".join(_cell(kind, client) for client in clients) + " |"


def _cell(kind: Kind, client: Client) -> str:
    if kind.name in client.without:
        return f"none: {client.without[kind.name]}"
    return f"{client.verdict}, see below" if kind.name in client.notes else client.verdict


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
