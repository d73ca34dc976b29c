"""Choice between the two kernels of pulls.  A file of its own, because both stand below it."""

from typing import Protocol

from broker.filter.subscription_filter import MAX_TAG_CODES
from broker.plan.table import PlanTable
from broker.pull import kernel
from broker.pull.kernel import Note
from broker.pull.planner import PullKey, PullPlanner
from sprocket.engine.choice import native
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import Frames
from sprocket.remoting.routes import Route
from store.queue.kernel_reads import KernelReads

try:
    from broker.pull import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

_is_native = native("broker.pull.kernel_native") is not None
if _is_native and kernel_native.MAX_CODES != MAX_TAG_CODES:
    raise ImportError("the compiled engine searches for another number of tags: run `make engine`")


class PullKernel(Protocol):
    """Kernel of the pulls of one route."""

    def read(self, frames: Frames, index: int, proof: object | None = None, /) -> tuple[bytes, list[Note]]:
        """Serve pulls from `index` on, up to the first one for the handler: return responses and what is to be noted.

        `proof` stands for a gate that has not seen the frames: what does not prove it is for the handler.
        """
        ...


def pull_kernel(
    route: Route,
    found: ResponseTemplate,
    planner: PullPlanner,
    reads: KernelReads,
    max_response_bytes: int = JOIN_BYTES,
    max_read_bytes: int = WRITE_BYTES,
) -> PullKernel:
    """Return the kernel of the engine in use; `found` is the template of a response with messages."""
    code = int(route.code)
    fields = header_fields(code, route.header) if _is_native else None
    if fields is None:
        return kernel.PullKernel(route, found, planner.plan, reads, max_response_bytes, max_read_bytes)
    return kernel_native.PullKernel(
        code, fields, found.encoder, lambda *key: planner.plan(PullKey(*key)), PlanTable(planner.version), reads,
        max_response_bytes, max_read_bytes,
    )  # fmt: skip
