"""The load generator: sends or pulls with a window of outstanding requests that every read refills.

Frames are made before the clock runs, codes and opaques of all answers are checked.  The inner loop is C, compiled
on the spot, or the same in Python where there is no compiler; its ceiling is what it reaches against `sink`.
"""

import time

from benchmarks.system import exchanges, loop_c, loop_exchange, loop_python, native
from benchmarks.system.frames import PULL_BATCH, QUEUES
from benchmarks.system.workload import OPEN, Access, LoadError, Result, Workload
from tests.compat import wire

# As `tests.compat.cluster` names its first broker.
BROKER_NAME = "broker-a"
LOOPS = ("auto", "c", "python")


def loop_name(choice: str = "auto") -> str:
    """`c` or `python`: what `auto` comes to on this machine."""
    return choice if choice != "auto" else ("c" if native.compiler() else "python")


def run(
    address: str, topic: str, workload: Workload, seconds: float, loop: str = "auto", access: Access = OPEN
) -> Result:
    """Run the workload for `seconds` against `127.0.0.1:port`.  Raises LoadError, OSError."""
    if workload.is_exchange:
        return loop_exchange.run(address, _exchange(address, topic, workload), seconds)
    offsets: list[int] = []
    last_offset = 0
    if workload.kind == "pull" and access.account is not None:
        # Each signature is that of offset 0, so each pull is from there.
        offsets, last_offset = [0] * workload.connections * workload.slots, -1
    elif workload.kind == "pull":
        offsets, last_offset = _places(address, topic, workload)
    inner = loop_c.run if loop_name(loop) == "c" and not access.has_tls else loop_python.run
    return inner(address, topic, workload, seconds, offsets, last_offset, access)


def create_topic(address: str, topic: str, access: Access) -> None:
    """Create the topic; behind access control, the first send does it."""
    if access.account is None:
        wire.create_topic(address, topic, QUEUES)


def store(
    address: str,
    topic: str,
    body_bytes: int,
    messages: int,
    loop: str = "auto",
    *,
    with_values: bool = False,
    access: Access = OPEN,
) -> None:
    """Creates the topic and stores about so many messages in it, evenly over its queues."""
    create_topic(address, topic, access)
    workload = Workload("send", body_bytes, 256, stop_after=messages, with_values=with_values)
    run(address, topic, workload, 120.0, loop, access)


def _exchange(address: str, topic: str, workload: Workload) -> exchanges.Exchange:
    if workload.kind == "transaction":
        return exchanges.Transactions(topic, workload, address)
    if workload.kind == "delayed":
        return exchanges.Delayed(topic, workload, address)
    if workload.kind == "sql pull":
        return exchanges.SqlPulls(topic, workload, *_places(address, topic, workload))
    # A group of its own for every slice: each finds all messages of the topic.
    return exchanges.Pops(topic, workload, f"bench-pop-{time.time_ns()}", BROKER_NAME)


def _places(address: str, topic: str, workload: Workload) -> tuple[list[int], int]:
    """Where each slot of a pull begins, and the last place from which a whole batch can be had."""
    last_offset = _last_offset(address, topic)
    count = workload.connections * workload.slots
    return [index * last_offset // count for index in range(count)], last_offset


def _last_offset(address: str, topic: str) -> int:
    """The last queue offset from which a whole batch can be pulled in every queue."""
    ends = []
    for queue in range(QUEUES):
        answer = wire.invoke(address, wire.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
        if answer.code != 0:
            raise LoadError(f"max offset of {topic}: code {answer.code}, {answer.remark}")
        ends.append(int(answer.fields["offset"]))
    if min(ends) < PULL_BATCH:
        raise LoadError(f"queues of {topic} end at {ends}, too few to pull {PULL_BATCH}")
    return min(ends) - PULL_BATCH
