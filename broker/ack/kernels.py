"""Choice of the kernel of acknowledgements.  With pure Python there is none: `AckProcessor` serves each request.

That handler is the specification of the compiled kernel.  A kernel in Python would only repeat it.
"""

from collections.abc import Callable
from typing import Final

from broker.ack.planner import AckKey, AckPlan, AckPlanner
from broker.plan.table import PlanTable, Refused
from broker.pop.revive.revive_log import ACK_TAGS_CODE
from sprocket.common.errors import RequestError
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.pop_extra_info import MAX_HANDLE_CHARS, parse_handle
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from sprocket.remoting.routes import Route
from store.layout import CONSUME_QUEUE_UNIT_BYTES

try:
    from broker.ack import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.ack.kernel_native") is not None
_SIZES: Final = FIXED_IPV4_RAW.size, CONSUME_QUEUE_UNIT_BYTES, MAX_HANDLE_CHARS
if _is_native and kernel_native.SIZES != _SIZES:
    raise ImportError("the compiled engine has another layout of records or limit of handles: run `make engine`")


def ack_kernel(
    route: Route,
    done: ResponseTemplate,
    planner: AckPlanner,
    bounds_of: Callable[[AckPlan, int, int], tuple[int, int] | None],
) -> "kernel_native.AckKernel | None":
    """Return the kernel of the engine in use; `done` is the template of the responses.

    `bounds_of` returns for a plan, and the first offset and the time of a pop, the lowest and the highest offset that
    may be acknowledged now; None if the pop is in memory.
    """
    code = int(route.code)
    fields = header_fields(code, route.header, kernel_native) if _is_native else None
    if fields is None or done.encoder is None:
        return None

    def plan_of(topic: str, group: str, queue_id: int, end: str) -> AckPlan | Refused | None:
        # `end` is a handle from its revive queue up to the offset.
        try:
            handle = parse_handle(f"0 0 0 {end}0")
        except RequestError:
            return None  # the handler refuses each
        return planner.plan(AckKey(topic, group, queue_id, handle.revive_queue_id, handle.broker_name))

    return kernel_native.AckKernel(
        code, fields, done.encoder, plan_of, PlanTable(planner.version), bounds_of, ACK_TAGS_CODE
    )
