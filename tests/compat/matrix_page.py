"""Makes docs/compatibility-clients.md from the tables that the tests of storms run by.

``python -m tests.compat.matrix_page docs/compatibility-clients.md``
"""

import sys
from pathlib import Path

from tests.compat.clients import CPP, GO, JAVA, MIXED, Client
from tests.compat.kinds import KINDS, Kind

_HEAD = """\
# Clients

Written by `python -m tests.compat.matrix_page docs/compatibility-clients.md`; a test compares. Every cell that says
"passes" is a test of `tests/compat/test_storm_java.py`, `test_storm_go.py` or `test_storm_cpp.py`.

Each kind of message and way to consume runs in a storm: two brokers with SYNC_FLUSH, a producer and a consumer that go
on all the time, a second consumer of the group that joins, one broker stopped (SIGTERM) and started, the other killed
(SIGKILL) and started, and the first consumer that leaves. All kinds of a client run side by side. `tests/checkers` has
these checks over the whole history:

- What was acknowledged was given to a consumer, from the broker, queue and offset that the answer named, from no other.
- Nothing was given that nobody sent, that a filter leaves out, or that was rolled back.
- A message came twice only after one of these events, and only if its offset could not yet have been kept.
- Orderly: each queue and each key in its order, none passed over, and never two handlers of a queue at a time, but for
  the 32 s after its broker's restart: locks are in memory, as in RocketMQ.
- Delays: never early; both forms of delay may come twice after the SIGKILL, as the broker then writes them again.
- Transactions: each committed one is given, no rolled back one is, and each undecided one was asked about.
- Requests: each has its own reply, or an error; those that no event touched have the reply.
- Broadcasting: each consumer has all. Retry: each attempt is counted, and exactly the poisoned ones are dead letters.
- Both consumers and both brokers took part, also after each event.

The same tests run against Apache RocketMQ 5.3.3 with `COMPAT_AGAINST=apache`, to test the tests.

"""

_TAIL = """
## Both families in one group

`tests/compat/test_storm_mixed.py`: Java 5.3.3 sends and consumes, and `sprocket`'s own client joins and stays; and the
reverse, at the same time. Kinds: {mixed}.
Orderly consumers of both lock the same queues, and requests of each are answered by the other.

## What the clients do by themselves
"""


def page() -> str:
    """The whole page."""
    clients = [*JAVA, GO, CPP]
    lines = ["| Kind | What | " + " | ".join(f"{each.name} {each.version}" for each in clients) + " |"]
    lines.append("|---" * (len(clients) + 2) + "|")
    lines += [_row(kind, clients) for kind in KINDS]
    notes = [f"- {GO.name} {GO.version}, `{kind}`: {note}." for kind, note in GO.notes.items()]
    tail = _TAIL.format(mixed=", ".join(f"`{kind}`" for kind in MIXED))
    return _HEAD + "\n".join(lines) + "\n" + tail + "\n" + "\n".join([*notes, _CPP]) + "\n" + _SUITES


_CPP = """\
- C++: each kind has passed, but not in every run. After a broker was killed, an instance of the client sometimes sends
  neither heartbeats nor pulls any more: of seven kinds none in one run, two in another. Whether it does so with
  RocketMQ, too, was not tried. `pytest -m slow tests/compat/test_storm_cpp.py` runs it; `make test` does not.
- C++: what a consumer gets names no broker, so that each broker has a cluster name of its own; the answer to a send
  names no queue, so that places are compared among deliveries only. `rocketmq-client-python` 2.0.0 comes without the
  library that it calls."""


_SUITES = """
## Other people's suites and tools

RocketMQ's own integration tests run against a name server and three brokers of Sprocket. `pytest -m slow
tests/compat/test_apache_suite.py` fetches them from Maven Central (`rocketmq-test` 5.5.0) and replaces the one class
that starts servers. What they look up in objects inside a broker is asked over the wire.

| What | Outcome |
|---|---|
| module `test` of RocketMQ 5.3.3: sends, consumers, pop, offsets, recall, TLS | passes but for these, and see below |
| `LagCalculationIT.testEstimateLag`, `OffsetNotFoundIT` | not applicable: they reach into a broker in their process |
| `OffsetResetForPopIT`, two tests | pass without their look into a broker's table of orders |
| `BatchSendIT.testBatchSend_SysInnerBatch` | an empty queue of a BatchCQ topic begins at 0, not -1; else it passes |
| `StaticTopicIT`, `CreateAndUpdateTopicIT.testStaticTopicNotAffected` | not supported: static topics |
| `PopPriorityIT` of 5.5.0 | not supported: priorities came after 5.3.3 |
| gRPC, DLedger, controller, broker container | not run: these servers are not there |
| rocketmq-e2e, Java, remoting client 4.9.3, with one broker | passes, `PushConsumerRetryTest` not always |
| rocketmq-exporter 0.0.3 | works; TOPIC_PUT_SIZE and GROUP_GET_SIZE (bytes by topic and group) are not kept |
| rocketmq-dashboard 2.1.1 | clusters to settings and dead letters: works; traces and ACL pages not tried |

A consumer of a new group asks for its offset, is told that there is none, and then asks for the end of the queue. What
arrives in between is passed over. On a busy machine tests that send right after `start()` fail of it now and then
(`PushConsumerRetryTest`, `TagMessageWithMulConsumerIT`, `OneConsumerMulTopicIT`); the latter two were seen to fail with
RocketMQ's own brokers as well.
"""


def _row(kind: Kind, clients: list[Client]) -> str:
    return f"| `{kind.name}` | {kind.title} | " + " | ".join(_cell(kind, client) for client in clients) + " |"


def _cell(kind: Kind, client: Client) -> str:
    if kind.name in client.without:
        return f"none: {client.without[kind.name]}"
    return f"{client.verdict}, see below" if kind.name in client.notes else client.verdict


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
