"""Choice of the kernel of sends.  With pure Python there is none: `SendProcessor` serves each request.

That handler is the specification of the compiled kernel.  A kernel in Python would only repeat it.
"""

from collections.abc import Sequence
from typing import Final

from broker.plan.table import PlanTable, Refused
from broker.send.planner import SendKey, SendPlan, SendPlanner
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.routes import Route
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.moves import PLAIN_FLAGS

try:
    from broker.send import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.send.kernel_native") is not None
_SIZES: Final = FIXED_IPV4_RAW.size, CONSUME_QUEUE_UNIT_BYTES
# Max sends that the kernel takes from one read: more would hold up the loop.
_MAX_SENDS: Final = 1024
if _is_native and kernel_native.SIZES != _SIZES:
    raise ImportError("the compiled engine has another layout of records: run `make engine`")


def send_kernel(routes: Sequence[Route], planner: SendPlanner) -> "kernel_native.SendKernel | None":
    """Return the kernel of the engine in use for the sends of some routes."""
    if not _is_native:
        return None
    readers = {}
    for route in routes:
        code = int(route.code)
        fields = header_fields(code, route.header, kernel_native)
        if fields is not None:
            readers[code] = kernel_native.SendReader(code, fields, PLAIN_FLAGS)

    def plan_of(topic: str, queue_id: int) -> SendPlan | Refused:
        return planner.plan(SendKey(topic, queue_id))

    return kernel_native.SendKernel(readers, plan_of, PlanTable(planner.version), _MAX_SENDS)
