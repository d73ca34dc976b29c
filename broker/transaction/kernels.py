"""Choice of the kernel of ends of transactions.  With pure Python there is none: `TransactionProcessor` serves each.

That handler is the specification of the compiled kernel.
"""

from broker.plan.table import PlanTable, Refused
from broker.transaction.planner import EndKey, EndPlan, EndPlanner
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.routes import Route
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.kernel_reads import KernelReads

try:
    from broker.transaction import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.transaction.kernel_native") is not None
if _is_native and kernel_native.QUEUE_ENTRY_BYTES != CONSUME_QUEUE_UNIT_BYTES:
    raise ImportError("the compiled engine has another layout of entries than store/layout.py: run `make engine`")


def end_kernel(
    route: Route, done: ResponseTemplate, planner: EndPlanner, reads: KernelReads
) -> "kernel_native.EndKernel | None":
    """Return the kernel of the engine in use; `done` is the template of the responses."""
    code = int(route.code)
    fields = header_fields(code, route.header, kernel_native) if _is_native else None
    if fields is None or done.encoder is None:
        return None

    def plan_of(outcome: int, topic: str, queue_id: int) -> EndPlan | Refused:
        return planner.plan(EndKey(outcome, topic, queue_id))

    return kernel_native.EndKernel(code, fields, done.encoder, plan_of, PlanTable(planner.version), reads)
