# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What every read and every response passes, for a connection with nothing unusual; the rest is Python.

A read is usual if it is of whole frames of one request code whose handler serves frames, and nothing waits on this
connection.  `RemotingChannel.receive` and `send_frames` do the same for all reads and responses: they are the twins.
Behind a guard, a handler gets only frames whose signatures it proves; the guard sees all others, and it alone refuses.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

from sprocket.remoting.read_frames_native import cut

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.remoting.read_frames_native cimport FrameParts, ReadFrames
from sprocket.remoting.signatures_native cimport Proof

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # Larger reads may be shed, and larger responses are counted while they are unsent.
    SMALL = 16 * 1024
    # Bytes of a header that name its route, see `framing.start_of`.
    JSON_START_BYTES = 15
    BINARY_START_BYTES = 2

# For a comparison with the limits of the twins.
SMALL_BYTES = SMALL


cdef class Connection:
    """Part of `RemotingChannel` that the loop's transport and the kernels call."""

    cdef public double read_at
    cdef public object partial_at
    cdef public object stalled_at
    cdef public bint is_closed
    cdef public bint _is_waiting
    cdef public bint _is_slow
    cdef public bint _reading
    cdef public bint _flush_scheduled
    cdef public Py_ssize_t partial_bytes
    cdef public Py_ssize_t _out_bytes
    cdef public list _out
    cdef public dict proofs  # what requests prove to be served without the guard, by code
    cdef public object _backlog
    cdef public object _counters
    cdef public object _decoder
    cdef public object _held
    cdef public object _long
    cdef public object _loop
    cdef public object _pending
    cdef public object _table
    cdef public object _transport
    # The handler of the frames that begin like the last one, in the table of then.
    cdef object handler
    cdef object handler_table
    cdef object handler_code
    cdef int serialization
    cdef uint8_t start[JSON_START_BYTES]
    cdef Py_ssize_t start_bytes

    def data_received(self, data):
        """Serve the frames of a read."""
        cdef ReadFrames frames = self.whole_frames(data)
        if frames is None:
            self.receive(data)
            return
        cdef Py_ssize_t served = 0
        counters = self._counters
        self.read_at = self._loop.time()
        self.partial_at = None
        counters.received_bytes += PyBytes_GET_SIZE(data)
        counters.frames += frames.count
        handler = self.handler_of(frames)
        if handler is not None:
            self._reading = True
            try:
                served = self.serve_frames(handler, frames)
            except Exception as error:
                self._reading = False
                self.serving_failed(error)
                return
            self._reading = False
        if served < frames.count:
            self.serve_rest(frames, served)
            return
        if self._out:
            self.flush_small()
        if self._long.is_full and not self.is_closed:
            self._leave(())

    cdef Py_ssize_t serve_frames(self, handler, ReadFrames frames) except -1:
        """Let the handler serve the frames with which a read begins; return how many.  The twin of `serve_proved`."""
        cdef Proof proof = None
        table = self._table
        if table.guard is not None:
            proof = self.proof_of(self.handler_code)
            if proof is None:
                return 0
        if handler.settle is None:
            table.settle()
        return handler.serve(frames, 0, self) if proof is None else handler.serve_proved(frames, 0, self, proof)

    cpdef Proof proof_of(self, code):
        """Return what requests of `code` prove to be served without the guard; None if it must see them."""
        cdef Proof proof = self.proofs.get(code)
        return proof if proof is not None and proof.holds() else None

    cdef ReadFrames whole_frames(self, data):
        """Return the frames of a usual read; None if it is not."""
        cdef ReadFrames frames
        table, decoder = self._table, self._decoder
        if self._held is not None or self._is_waiting or self._is_slow or self.partial_bytes or not PyBytes_CheckExact(data):
            return None
        if self._backlog or self._pending.waiting or self.stalled_at is not None or decoder.error is not None:
            return None
        if decoder.pending_bytes or (PyBytes_GET_SIZE(data) >= SMALL and table.overload is not None):
            return None
        frames = cut(data, decoder.max_frame_bytes, decoder.large_header_bytes)
        return frames if frames.count and frames.end == PyBytes_GET_SIZE(data) else None

    cdef object handler_of(self, ReadFrames frames):
        """Return what serves the frames of the code of the first; None if the second has another, or none does."""
        if self.handler_table is not self._table or not self.starts_alike(frames, 0):
            self.learn(frames)
        return self.handler if frames.count == 1 or self.starts_alike(frames, 1) else None

    cdef bint starts_alike(self, ReadFrames frames, Py_ssize_t index) noexcept:
        """Return whether a frame begins like the one whose handler is known."""
        cdef FrameParts parts
        frames.part(index, &parts)
        return (
            parts.serialization == self.serialization
            and min(parts.header_bytes, JSON_START_BYTES if parts.serialization == 0 else BINARY_START_BYTES)
            == self.start_bytes and not memcmp(parts.header, self.start, self.start_bytes)
        )

    cdef int learn(self, ReadFrames frames) except -1:
        """Find the handler of the first frame."""
        cdef FrameParts parts
        entry = self._table.entry_of(frames[0])
        self.handler, self.handler_code = (None, None) if entry is None else (entry.frames, entry.code)
        self.handler_table = self._table
        frames.part(0, &parts)
        self.serialization = parts.serialization
        self.start_bytes = min(parts.header_bytes, JSON_START_BYTES if parts.serialization == 0 else BINARY_START_BYTES)
        memcpy(self.start, parts.header, self.start_bytes)
        return 0

    def answer_frames(
        self, request_code, count, bytes frames not None, code, double read_at, *, bint was_later, bint at_once=False
    ):
        """Send the responses, with `code`, to `count` requests; see `routes.FramesChannel`."""
        if self.is_closed or (was_later and not at_once):
            self.send_frames(request_code, count, frames, code, read_at, was_later=was_later, at_once=at_once)
            return
        latency = self._table.latency
        if latency is not None:
            latency.note(request_code, code, <double> self._loop.time() - read_at, count, was_later, False)
        self._out.append(frames)
        self._out_bytes += PyBytes_GET_SIZE(frames)
        if not self._reading:  # nothing else follows for this connection in this turn
            self.flush_small()

    cdef int flush_small(self) except -1:
        """Write what is queued; small output that nothing waits before is not counted."""
        transport = self._transport
        if len(self._out) > 1 or self._out_bytes > SMALL or transport is None or transport.get_write_buffer_size():
            self._flush()
            return 0
        frames = self._out.pop()
        self._out_bytes = 0
        transport.write(frames)
        return 0
