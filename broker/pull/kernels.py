"""Choice of the kernel of pulls.  With pure Python there is none: `PullProcessor` serves each request.

That handler is the specification of the compiled kernel.  A kernel in Python would only repeat it.
"""

from broker.filter.subscription_filter import MAX_TAG_CODES
from broker.plan.table import PlanTable
from broker.pull.planner import PullKey, PullPlan, PullPlanner
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.routes import Route
from store.queue.kernel_reads import KernelReads

try:
    from broker.pull import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.pull.kernel_native") is not None
if _is_native and kernel_native.MAX_CODES != MAX_TAG_CODES:
    raise ImportError("the compiled engine searches for another number of tags: run `make engine`")
# Plan, next offset, offset to commit or None, messages, their bytes.
Note = tuple[PullPlan, int, int | None, int, int]


def pull_kernel(
    route: Route,
    found: ResponseTemplate,
    planner: PullPlanner,
    reads: KernelReads,
    max_response_bytes: int = JOIN_BYTES,
    max_read_bytes: int = WRITE_BYTES,
) -> "kernel_native.PullKernel | None":
    """Return the kernel of the engine in use; `found` is the template of a response with messages.

    A response has up to `max_response_bytes` of records, and one call of its `read` returns no further response after
    `max_read_bytes`.
    """
    code = int(route.code)
    fields = header_fields(code, route.header) if _is_native else None
    if fields is None:
        return None
    return kernel_native.PullKernel(
        code, fields, found.encoder, lambda *key: planner.plan(PullKey(*key)), PlanTable(planner.version), reads,
        max_response_bytes, max_read_bytes,
    )  # fmt: skip
