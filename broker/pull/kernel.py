"""Kernel of pulls, in pure Python: from the frames of a turn to the frames of the responses, records included.

It is the specification of `kernel_native.pyx`: a plain loop, which serves one pull after another.  It knows formats and
limits of reads, and no rules: these are in the plans.  Both kernels leave to the handler what they do not serve, and
the handler's response to each pull is the same.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.plan.table import Refused
from broker.pull.planner import COMMIT_OFFSET, PullKey, PullPlan, pull_key
from broker.quota.bucket import admits
from sprocket.remoting.command import Buffer, Request
from sprocket.remoting.flow.joined_buffers import JOIN_BYTES, WRITE_BYTES
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import BINARY_CODE_BYTES, JSON, Frame, Frames
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.routes import AdmittedFrame, Entry, Route
from store.queue.consume_queue import ENTRY, UNIT, ConsumeQueue
from store.queue.kernel_reads import KernelReads

# Plan, next offset, offset to commit or None, messages, their bytes.
Note = tuple[PullPlan, int, int | None, int, int]
# Physical offset, size, tags code.
_Entry = tuple[int, int, int]
# Max messages of one response.
_MAX_MESSAGES: Final = 1024


class _Limits(NamedTuple):
    """Limits of reads in one turn, see `KernelReads.limits`."""

    wrote_offset: int
    cold_end: int
    memory_bytes: int
    max_messages: int
    max_bytes: int
    max_scanned: int

    def is_near(self, physical_offset: int) -> bool:
        """Return whether memory probably holds a record."""
        return 0 <= physical_offset <= self.wrote_offset <= physical_offset + self.memory_bytes


class PullKernel:
    """Kernel of the pulls of one route.

    `template` is that of the response with found messages.  A response has up to `max_response_bytes` of records, and
    one call of `read` returns no further response after `max_read_bytes`.
    """

    def __init__(
        self,
        route: Route,
        template: ResponseTemplate,
        plan_of: Callable[[PullKey], PullPlan | Refused],
        reads: KernelReads,
        max_response_bytes: int = JOIN_BYTES,
        max_read_bytes: int = WRITE_BYTES,
    ) -> None:
        self._entry = Entry(route)
        self._binary_code = (self._entry.code & 0xFFFF).to_bytes(BINARY_CODE_BYTES, "big")
        self._template = template
        self._plan_of = plan_of
        self._reads = reads
        self._max_response_bytes = max_response_bytes
        self._max_read_bytes = max_read_bytes

    def read(self, frames: Frames, index: int, proof: object | None = None) -> tuple[bytes, list[Note]]:
        """Serve pulls from `index` on, up to the first one for the handler: return responses and what is to be noted.

        With `proof`, nothing is served, because only the compiled kernel checks signatures.
        """
        buffers: list[Buffer] = []
        notes: list[Note] = []
        total_bytes, limits = 0, _Limits(*self._reads.limits())
        end = len(frames) if proof is None else index
        while index < end and total_bytes < self._max_read_bytes:
            request = self._request(frames[index])
            note = None if request is None else self._respond(request, limits, buffers)
            if note is None:
                break
            notes.append(note)
            total_bytes += note[4]
            index += 1
        return b"".join(buffers), notes

    def _request(self, frame: Frame) -> Request[PullMessageRequestHeader] | None:
        """Return the request of a frame as `RouteTable.decode` does; None if it is of another code, or damaged."""
        if isinstance(frame, AdmittedFrame):
            # Exactly the request that a guard has checked is served.
            decoded = frame.decoded
            return decoded[1] if isinstance(decoded, tuple) and decoded[0].code == self._entry.code else None
        begin = self._entry.prefix if frame[0] == JSON else self._binary_code
        return self._entry.request_of(frame) if frame[1].startswith(begin) else None

    def _respond(
        self, request: Request[PullMessageRequestHeader], limits: _Limits, buffers: list[Buffer]
    ) -> Note | None:
        """Append the response to a pull to `buffers` and return its note; None if it is for the handler."""
        header = request.header
        plan = self._plan_of(pull_key(request.code, header))
        if request.flag or isinstance(plan, Refused) or not plan.is_for_kernel or plan.queue is None:
            return None
        if plan.buckets and not admits(plan.buckets):
            return None
        queue, offset = plan.queue, header.queue_offset
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if not max(min_offset, queue.cold_end) <= offset < max_offset:
            return None
        chosen, scanned = _choose(queue, offset, max_offset - offset, header.max_msg_nums, plan.codes, limits)
        records, size_bytes = self._records(chosen, limits)
        max_bytes, asked_bytes = min(self._max_response_bytes, limits.max_bytes), header.max_msg_bytes or 0
        if not records or size_bytes > (min(max_bytes, asked_bytes) if asked_bytes > 0 else max_bytes):
            return None
        values = (
            plan.broker_id, offset + scanned, min_offset, max_offset, plan.topic_flags, plan.group_config.group_sys_flag
        )  # fmt: skip
        buffers.append(self._template.frame(request.serialization, request.opaque, values, size_bytes))
        buffers += records
        commit = header.commit_offset if header.sys_flag & COMMIT_OFFSET else None
        return plan, offset + scanned, commit, len(chosen), size_bytes

    def _records(self, chosen: list[_Entry], limits: _Limits) -> tuple[list[memoryview], int]:
        """Return the records of the entries, those in a row as one buffer, and their bytes.

        Return nothing unless all lie in one segment, in ascending order.
        """
        if not chosen or chosen[0][0] < limits.cold_end:
            return [], 0
        start = row_end = chosen[0][0]
        segment, base, end = self._reads.segment_at(start)
        rows, size_bytes, end = [], 0, min(end, limits.wrote_offset)
        for at, size, _ in chosen:
            if at < row_end or size <= 0 or at + size > end:
                return [], 0
            if at != row_end:
                rows.append(segment[start - base : row_end - base])
                start = at
            row_end = at + size
            size_bytes += size
        return [*rows, segment[start - base : row_end - base]], size_bytes


def _choose(
    queue: ConsumeQueue,
    offset: int,
    available: int,
    max_messages: int,
    codes: tuple[int, ...] | None,
    limits: _Limits,
) -> tuple[list[_Entry], int]:
    """Return the wanted entries from `offset` on in one file, and the number of entries up to the next read's first.

    No entries if there are none, or if memory probably lacks one of their records.
    """
    found = queue.view_at(offset)
    if found is None:
        return [], 0
    view, position, in_file = found
    most = min(limits.max_messages, _MAX_MESSAGES)
    if codes is None:
        max_messages = min(max_messages, most)
        available = min(available, in_file, max_messages)
    elif max_messages <= most:
        available = min(available, in_file, max(limits.max_scanned, max_messages))
    else:
        return [], 0
    chosen: list[_Entry] = []
    scanned = 0
    for entry in ENTRY.iter_unpack(view[position : position + max(0, available) * UNIT]):
        if codes is None or _low_bits(entry[2]) in codes:
            if len(chosen) == max_messages:
                break
            chosen.append(entry)
        scanned += 1
        last = entry
    if not chosen or not all(limits.is_near(one[0]) for one in (chosen[0], chosen[-1], last)):
        return [], 0
    return chosen, scanned


def _low_bits(tags_code: int) -> int:
    """Return the part of a tags code that counts, as in `Long.intValue`."""
    return (tags_code + 0x8000_0000) % 0x1_0000_0000 - 0x8000_0000
