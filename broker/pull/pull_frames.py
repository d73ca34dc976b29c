"""Pulls of a turn that a kernel serves: one call, one write, and what is noted of them.

`PullProcessor.pull` is the handler, which serves all others, and with pure Python every one: it is the specification of
the kernel.  See docs/engine-requests.md.
"""

import logging
from collections.abc import Sequence
from typing import Final

from broker.core import BrokerCore
from broker.plan.table import PlanTable
from broker.pull.planner import PullKey, PullPlan, PullPlanner
from broker.quota.bucket import Buckets, admits, charge
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import Frames
from sprocket.remoting.routes import CodeFrames, FramesChannel, FramesHandler, Route
from store.queue.kernel_reads import KernelReads

try:
    from broker.pull import kernel_native
except ImportError:  # no C compiler
    kernel_native = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_is_native = native("broker.pull.kernel_native") is not None
# Plan, next offset, offset to commit or None, messages, their bytes.
Note = tuple[PullPlan, int, int | None, int, int]


def pull_kernel(
    route: Route, found: ResponseTemplate, planner: PullPlanner, reads: KernelReads
) -> "kernel_native.PullKernel | None":
    """Return the kernel of pulls, None with pure Python; `found` is the template of a response with messages."""
    code = int(route.code)
    fields = header_fields(code, route.header) if _is_native else None
    if fields is None:
        return None
    return kernel_native.PullKernel(
        code, fields, found.encoder, lambda *key: planner.plan(PullKey(*key)), PlanTable(planner.version), reads,
        JOIN_BYTES, WRITE_BYTES,
    )  # fmt: skip


class PullFrames:
    """`FramesHandler` of the pulls of each of `routes`.  Lives in the event loop's thread."""

    def __init__(
        self, core: BrokerCore, planner: PullPlanner, found: ResponseTemplate, routes: Sequence[Route]
    ) -> None:
        self._quotas = core.quota_reads
        self._reads = reads = core.store.kernel_reads
        self._offsets = core.offsets
        self._flow = core.flow
        kernels = {int(route.code): pull_kernel(route, found, planner, reads) for route in routes}
        self._kernels = {code: kernel for code, kernel in kernels.items() if kernel is not None}

    def handler(self, code: int) -> FramesHandler | None:
        """Return the handler for the pulls of one request code; None with pure Python."""
        return CodeFrames(code, self.serve, prove_code=self.serve) if code in self._kernels else None

    def serve(self, code: int, frames: Frames, index: int, channel: FramesChannel, proof: object | None = None) -> int:
        """Serve pulls from `index` on; return how many, 0 if the handler must serve the next one.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        callers = self._quotas.callers(channel)
        if callers and not admits(callers):
            return 0
        try:
            responses, notes = self._kernels[code].read(frames, index, proof)
        except Exception:
            # Nothing is noted yet: the handler serves them, and responds to each.
            peer_lines.error(logger, channel.peer, "event=pull_kernel_failed peer=%s:%s", *channel.peer, exc_info=True)
            return 0
        self._quotas.planned(channel)
        count = len(notes)
        if count:
            self._note(notes, channel.peer, callers)
            channel.answer_frames(
                code, count, frames=responses, code=_SUCCESS, read_at=channel.read_at, was_later=False
            )
        return count

    def _note(self, notes: list[Note], peer: tuple[str, int], callers: Buckets) -> None:
        offsets, flow, total = self._offsets, self._flow, 0
        for plan, next_offset, commit_offset, messages, size_bytes in notes:
            group, topic, queue_id = plan.group, plan.topic, plan.queue_id
            offsets.note_pull(group, topic, queue_id, next_offset)
            if commit_offset is not None:
                offsets.commit(group, topic, queue_id, commit_offset, f"{peer[0]}:{peer[1]}")
            flow.delivered(topic, group, messages, size_bytes)
            if plan.buckets or callers:
                charge(plan.buckets + callers, messages, size_bytes)
            total += messages
        self._reads.found(len(notes), total)
