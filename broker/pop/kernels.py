"""Choice of the kernel of pops.  With pure Python there is none: `PopProcessor` serves each request.

That handler is the specification of the compiled kernel.  A kernel in Python would only repeat it.
"""

from collections.abc import Callable
from typing import Final

from broker.filter.subscription_filter import MAX_TAG_CODES
from broker.plan.table import PlanTable
from broker.pop.planner import LATE_MS, MAX_MESSAGES, PopKey, PopPlan, PopPlanner
from broker.pop.records import ACK_INTERVAL_MS
from broker.pop.revive.revive_log import CHECKPOINT_TAGS_CODE
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.routes import Route
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.kernel_reads import KernelReads

try:
    from broker.pop import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.pop.kernel_native") is not None
_LIMITS: Final = MAX_MESSAGES, LATE_MS, ACK_INTERVAL_MS, MAX_TAG_CODES
_SIZES: Final = FIXED_IPV4_RAW.size, CONSUME_QUEUE_UNIT_BYTES
if _is_native and (kernel_native.LIMITS, kernel_native.SIZES) != (_LIMITS, _SIZES):
    raise ImportError("the compiled engine has another layout of records or other limits of pops: run `make engine`")

# Plan, queue id of the header, messages left, messages, their bytes, and of each queue that was taken from: its id, the
# next offset, and the messages.
Note = tuple[PopPlan, int, int, int, int, list[tuple[int, int, int]]]


def pop_kernel(
    route: Route,
    found: ResponseTemplate,
    planner: PopPlanner,
    offsets_of: Callable[[str, str, range], list[int]],
    retry_reads_of: Callable[[PopPlan, int], int],
    reads: KernelReads,
) -> "kernel_native.PopKernel | None":
    """Return the kernel of the engine in use; `found` is the template of a response with messages.

    `offsets_of` returns where a group's next pop of each of some queues begins, -1 for unknown.  `retry_reads_of`
    returns for a plan and a draw how many empty queues of a retry topic a pop reads; -1 if one has messages.
    """
    code = int(route.code)
    fields = header_fields(code, route.header, kernel_native) if _is_native else None
    if fields is None or found.encoder is None:
        return None
    return kernel_native.PopKernel(
        code, fields, found.encoder, JOIN_BYTES, lambda *key: planner.plan(PopKey(*key)), PlanTable(planner.version),
        offsets_of, retry_reads_of, reads, CHECKPOINT_TAGS_CODE,
    )  # fmt: skip
