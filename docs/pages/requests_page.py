"""Writer of docs/engine-requests.md, from the planners of requests.

Run as ``python -m docs.pages.requests_page <file>`` (`make docs`); a test compares the file with its output.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final

from broker.ack import planner as ack
from broker.plan.planner import Planner
from broker.pop import planner as pop
from broker.processor.end_transaction import TransactionProcessor
from broker.processor.pop.ack import AckProcessor
from broker.processor.pop.pop import PopProcessor
from broker.processor.pull import PullProcessor
from broker.processor.send import SendProcessor
from broker.pull import planner as pull
from broker.send import planner as send
from broker.transaction import planner as transaction
from docs.pages.command import write
from sprocket.remoting.codes import RequestCode

_HEAD: Final = """\
# Requests that kernels serve

Written by `make docs` from the planners; do not edit.

A *plan* is what has been decided about requests before a message is touched. A *planner* makes plans and has all
rules. A *kernel* has the mechanics and no rules; a *handler* serves one request after the other, and whatever a
kernel leaves. Both have the same plans, so they give the same results. [engine.md](engine.md) says what is
compiled. With pure Python, the handlers serve all requests: they are the specification of the kernels.

{summary}

A read becomes `ReadFrames`: the received bytes, and the positions of the whole frames in them. Lengths are checked
first. The kernels read headers and bodies there, from the first frame up to the first one for the handler. A frame
becomes a tuple only if something else asks for it: the handler, an access gate, or the refusals of a failed append.

A read of whole frames of one code runs no Python function until its frames are with the kernel:
`sprocket/remoting/flow/connection_native.pyx` cuts it and calls. So do its responses, up to the transport. Long
reads, parts of frames, several codes in one read, held or waiting frames and stalled peers go through
`sprocket/remoting/channel.py`.

A client's JSON headers differ in few values: queue, time, properties, opaque. So `header_reader_native.pyx` keeps
four headers with gaps at such values. A header that has the same bytes between its values as one of them is not
parsed, and only its values are checked. Of others, every eighth replaces the oldest of the four.

## When plans end

Plans are kept in a table until the plan version rises (`broker/plan/`). A plan that must not last, such as one for
a queue that does not exist yet, is not kept: the first message makes the queue without a rise.

| The plan version rises with | Where |
|---|---|
| the configuration | `broker/config/live_config.py` |
| topics, groups, and what groups are forbidden | `broker/config/versioned_table.py`, `broker/topic/topics.py` |
| consumers and their subscriptions, but not with each heartbeat | `broker/client/clients.py` |
| SQL filters | `broker/filter/consumer_filters.py` |
| resets of offsets | `broker/offset/consumer_offsets.py` |
| the removal of queues | `store/queue/consume_queue_table.py` |
"""

_SENDS: Final = """\
Replies have the same plans. Only the handler creates topics, and draws a queue for a header without one. A topic
that is not in its file yet has a plan for one send only, because its responses wait.

`SendIntake` adds the sends that the kernel takes to the `SendTurn` of this turn of the loop, which looks up each
plan once. Then one call makes the records and the entries, and one the responses of all reads. Between them, the
store writes and confirms as for every append, so SYNC_FLUSH and SYNC_MASTER mean the same. While an append waits
for disk or slaves, its responses of success are made, in Python too. No `Request` and no `PendingMessage` is made.
If several connections send, the reads of one turn are one append: one write of the log, one for each queue, one
call of each listener. Each connection gets one write of responses.

| Rule | Reason |
|---|---|
| the append follows at the end of the turn | then the loop has read all connections that were ready |
| it is earlier if any connection sends another request | requests keep their order; a pull sees the sends before it |
| it is earlier if a connection ends, the role changes, 4,096 sends or 1 MiB wait | nothing is lost or takes long |
| it is earlier at a 17th topic, a 65th queue, or the end of the segment | the next turn begins with that send |
| a connection that sends alone is served at once | it would wait for nobody |
| if the plan version rose, or the room became too small, the handler serves the turn | other work may run before |
| if the append fails, all its sends are refused | nothing of them is stored |

Half and timed messages wait in a topic of the broker. The kernel takes them with the same properties as the
handler, even if their own queue does not exist yet:

| Kind | Taken if |
|---|---|
| half message | TRAN_MSG is `true`, there is one producer group, and the broker accepts transactions |
| timed message | one of the timer's properties is a future time within the limit; its slot is not crowded |

A turn asks for the time once, and for the messages of each slot once.

The handler also serves the first message of a queue, oneway requests, unknown header fields, and messages
without a body or without a unique key of letters and digits. It serves other properties with a meaning to the
broker, such as a delay level or `WAIT=false`, tags outside of ASCII, IPv6 addresses, and the end of a segment. It
serves all on a slave, with light queues, and with `enabledAppendPropCRC=false`. Words inside of values mean
nothing, and a sharding key only changes statistics.

A client's batch is for the handler, too, but the kernel makes its records (`SendTurn.take_batch`), if the queue is for
the kernel and no message has a property of the store (`INNER_`), a lite topic, a seal, or a tag outside of ASCII. A
namespace with `messageTypes` leaves it to the handler. The batch may be the first use of its queue.

One thing differs: the handler, and the gate, write the refusals of a read before its other responses. Clients match
responses by opaque.
"""

_PULLS: Final = """\
A kernel reads headers, looks up plans, and makes whole responses in one buffer, up to 256 KiB at a time. Python
then notes offsets and counts, and the connection gets one write. A pull is never put off. Sends of the same turn
that wait are stored before it.

The handler also serves pulls that find nothing and may be held, oneway requests, headers with unknown fields,
responses of more than 64 KiB or from two segments, and records that are checked at each read or that memory may not
hold.
"""

_POPS: Final = """\
Peeks, notifications and counts of held pops ask the planner whether they may read. The numbers of a header
(messages, times) count for each pop alone.

For each pop, one call reads the header, takes from the queues in their order, and makes the checkpoints and the
whole response; nothing is changed yet. Python then notes the offsets and the messages in flight, because the next
pop begins after them. The checkpoints of the read are one append. The responses are one write, sent when the append
is as safe as flush mode and role demand; `PopEnd` decides this for kernel and handler.

The queue to begin with is drawn at random, and the revive queues take turns. `PopDraws` keeps a draw until a pop
uses it. So a pop that turns out to be for the handler gets the same draw there.

The handler also serves pops that find nothing, those whose retry topic has messages, those of more than 64 KiB or
with records of a queue from two segments, and a group's first pop of a queue. It serves all while a reset waits,
and before the timer has a queue.

One thing differs: if the pops of a read that the kernel serves leave messages, they wake a held pop before the rest
of the read is served.
"""

_ACKS: Final = """\
Changes of the invisible time and batches have the same plans.

The kernel takes up to 1,024 acknowledgements of up to 64 pops. Those of one pop of one queue differ only in the
offset, so the kernel reads the three numbers of a handle and asks for the queue's offsets once for each pop. The
records are one append. The responses are one write, sent when the append is as safe as flush mode and role demand.

The handler also serves acknowledgements of pops that are in memory (`enablePopBufferMerge`), offsets outside of the
queue, handles that do not have eight parts, numbers with a sign or more than 18 digits, times that the timer does
not take, unknown header fields, and names outside of ASCII. It serves the first ones after a start, before the
timer has a queue.
"""

_ENDS: Final = """\
The planner also says why one end is refused: its group, its offsets, or its time.

The kernel serves a run of ends: those of a read whose headers begin the same, up to 1,024. It finds each half
message by both of its offsets, compares the producer group, and takes over the real message. The real messages and
the op messages of the run are one append. The responses are one write, sent when the append is as safe as flush
mode and role demand.

The handler serves the whole run if one end of it is refused, repeated, or of unknown outcome; if it ends a copy
that the check of transactions made; and for what makes a record [one for Python](#records-that-move). Behind access
control, the gate has checked the frames; then the sender must also be allowed to publish to the real topic, which
only the half message tells.
"""

_TAIL: Final = """\
## Records that move

`store/moves.py` gives the engine to those who move messages. The compiled one makes the new record from the bytes
of the stored one: other topic, flags and offsets, the same body and properties, new CRCs. Its ConsumeQueue entries
come with it, and `append_encoded` writes both.

Up to 256 timed messages that are due are one append, as in Python. If one of them is for Python, it takes all of
them, because their order counts. For Python are:

- a property that occurs twice, or has no value, among those that are looked at;
- a rolled or recalled message, a copy that the check of transactions made, an immunity to checks;
- a timed message that was in the log before the start, because such records are checked when they are read;
- a queue that has had no message yet, the end of a segment, an IPv6 address, a tag outside of ASCII.

The units of a slot are chained in the timer log. The compiled engine follows a chain within one file of it, and
then takes the records of the units that lie in one segment. Python reads each unit that is not plain.

A slave that acts for its master sends timed messages to another broker, so it uses Python.

## SQL filters

`record_filter_native.pyx` reads the values of a filter's properties, up to four, from each record. Python decides
once about each combination of values; the verdict is kept for the filter, up to 4,096 of them. The values are kept
too, in blocks of 512 entries and up to 6 MiB, for the next filter on the same properties. A pull of messages that
are spread over the log takes 2.1 us for each with them, and 5.1 us without. Records with values of more than 15
bytes in total, IPv6 hosts or long topics are decided alone, in Python.

## Entry into the timer wheel

`timer_units_native.pyx` enters messages up to the first one that is late, beyond the wheel's window, deletes
another, or needs a slot that another time uses. Python enters that one and up to 15 after it. Units and slots are
written as before: first all units, then the slots. A turn of the timer enters up to 1,024 messages, but only 256 by
Python. It comes when 512 wait, with pure Python when 256 do, and otherwise a tenth of a slot after the first.

## Signed requests

With access control, the kernels of sends, pulls, pops and acknowledgements prove each request in the call that
reads its header, and know the fields `AccessKey` and `Signature`. The gate gives the connection a `Proof` for each
code: an account's key, and the topics and groups for which the whole check has admitted a request
([passes](security.md#passes)). It ends with any change of policies or users, which raises a number
(`sprocket/common/revision.py`). A kernel takes a request only if it has this account, one of these topics and
groups, and the right signature. So nothing is served that was not proved, and nothing is refused. The read
continues at the gate with the first request that the kernel leaves.

The signature is made over the fields that were read, in the order of their names, and over the body. For each
account, the two blocks that begin every HMAC-SHA1 with its key are computed once. `sha1.h` uses the processor's
instructions for SHA if it has them: 0.39 us for a send of 128 B, 1.4 us in plain C, 1.5 us by OpenSSL through
`hashlib` (`copy`, `update` and `digest`, twice). OpenSSL called from C would need its headers on each machine that
builds.

The compiled connection serves reads behind a gate, too: it calls the kernel with the proof for the code, if that
still holds. No Python function runs for that. If the first request of a read is not admitted, all requests of this
read take the gate. So does what follows the first run of one kind. There, a request that a pass covers still costs
one compiled call, but becomes a `Request`.
"""


@dataclass(frozen=True)
class Kind:
    """A kind of request with a planner; `plural` names it in sentences, `prose` tells its mechanics."""

    title: str
    plural: str
    codes: tuple[RequestCode, ...]
    key: Any
    plan: Any
    planner: type[Planner[Any, Any]]
    why: type[Enum]
    handler: type
    prose: str


_CODES: Final = RequestCode
KINDS: Final = (
    Kind(
        "Sends", "sends", (_CODES.SEND_MESSAGE, _CODES.SEND_MESSAGE_V2), send.SendKey, send.SendPlan,
        send.SendPlanner, send.Why, SendProcessor, _SENDS,
    ),
    Kind(
        "Pulls", "pulls", (_CODES.PULL_MESSAGE, _CODES.LITE_PULL_MESSAGE), pull.PullKey, pull.PullPlan,
        pull.PullPlanner, pull.Why, PullProcessor, _PULLS,
    ),
    Kind(
        "Pops", "pops", (_CODES.POP_MESSAGE,), pop.PopKey, pop.PopPlan, pop.PopPlanner, pop.Why, PopProcessor, _POPS,
    ),
    Kind(
        "Acknowledgements of pops", "acknowledgements", (_CODES.ACK_MESSAGE,), ack.AckKey, ack.AckPlan,
        ack.AckPlanner, ack.Why, AckProcessor, _ACKS,
    ),
    Kind(
        "Ends of transactions", "ends", (_CODES.END_TRANSACTION,), transaction.EndKey, transaction.EndPlan,
        transaction.EndPlanner, transaction.Why, TransactionProcessor, _ENDS,
    ),
)  # fmt: skip


def page() -> str:
    """Return the whole text of docs/engine-requests.md."""
    rows = [
        f"| [{kind.title}](#{kind.title.lower().replace(' ', '-')}) | {_names(code.name for code in kind.codes)} | "
        f"`{_path(kind.planner)}` | `{_path(kind.handler)}` |"
        for kind in KINDS
    ]
    summary = "\n".join(["| Requests | Codes | Planner, its kernel beside it | Handler |", "|---|---|---|---|", *rows])
    return "\n".join([_HEAD.replace("{summary}", summary), *map(_section, KINDS), _TAIL])


def _section(kind: Kind) -> str:
    names = (field.name for field in fields(kind.plan))
    plan = (name for name in names if name not in kind.key._fields and name != "is_lasting")
    return "\n".join(
        [
            f"## {kind.title}",
            "",
            f"- Key of a plan: {_names(kind.key._fields)}.",
            f"- A plan says: {_names(plan)}; or that {kind.plural} are refused, with code and remark.",
            "",
            "| `needs_handler` | Because |",
            "|---|---|",
            *(f"| {why.name} | {why.value} |" for why in kind.why),
            "",
            kind.prose,
        ]
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _path(kind: type) -> str:
    return str(Path(inspect.getfile(kind)).relative_to(Path(__file__).parents[2]))


if __name__ == "__main__":
    write(page())
