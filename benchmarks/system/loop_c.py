"""The load generator's inner loop in C: `generator.c`, called with the interpreter's lock released."""

import ctypes
from collections.abc import Sequence
from functools import cache

from benchmarks.system import native
from benchmarks.system.frames import FIRST_OPAQUE, pull_parts, send_frames
from benchmarks.system.workload import OPEN, Access, LoadError, Result, Workload
from sprocket.remoting.credentials import Credentials

_MAX_SAMPLES = 2_000_000
_ERROR_BYTES = 512


class _Load(ctypes.Structure):
    """Mirrors `struct load` of generator.c, where each field is explained."""

    _fields_ = (
        ("port", ctypes.c_int32),
        ("connections", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("first_opaque", ctypes.c_int32),
        ("is_pull", ctypes.c_int32),
        ("head_bytes", ctypes.c_int32),
        ("tail_bytes", ctypes.c_int32),
        ("max_samples", ctypes.c_int32),
        ("last_offset", ctypes.c_int64),
        ("stop_after", ctypes.c_int64),
        ("seconds", ctypes.c_double),
        ("heads", ctypes.c_char_p),
        ("tails", ctypes.c_char_p),
        ("offsets", ctypes.POINTER(ctypes.c_int64)),
        ("samples", ctypes.POINTER(ctypes.c_double)),
        ("messages", ctypes.c_int64),
        ("sample_count", ctypes.c_int32),
        ("elapsed_s", ctypes.c_double),
        ("error", ctypes.c_char * _ERROR_BYTES),
    )


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(native.compiled("generator.c", shared=True)))


def run(
    address: str,
    topic: str,
    workload: Workload,
    seconds: float,
    offsets: Sequence[int],
    last_offset: int,
    access: Access = OPEN,
) -> Result:
    """Runs the workload; `offsets` are where each slot of a pull begins.  Raises LoadError."""
    heads, tails = _parts(topic, workload, access.account)
    samples = (ctypes.c_double * _MAX_SAMPLES)()
    load = _Load(
        port=int(address.rsplit(":", 1)[1]),
        connections=workload.connections,
        slots=workload.slots,
        first_opaque=FIRST_OPAQUE,
        is_pull=workload.kind == "pull",
        head_bytes=len(heads[0]),
        tail_bytes=len(tails[0]) if tails else 0,
        max_samples=_MAX_SAMPLES,
        last_offset=last_offset,
        stop_after=workload.stop_after,
        seconds=seconds,
        heads=b"".join(heads),
        tails=b"".join(tails),
        offsets=(ctypes.c_int64 * max(1, len(offsets)))(*offsets),
        samples=samples,
    )
    if _library().run_load(ctypes.byref(load)):
        raise LoadError(load.error.decode(errors="replace"))
    return Result(load.messages, load.elapsed_s, sorted(samples[: load.sample_count]))


def _parts(topic: str, workload: Workload, account: Credentials | None) -> tuple[list[bytes], list[bytes]]:
    """What each slot writes; a pull in two parts, with the offset between them."""
    if workload.kind == "send":
        frames = [
            frame
            for connection in range(workload.connections)
            for frame in send_frames(topic, workload, connection=connection, account=account).values()
        ]
        tails: list[bytes] = []
    else:
        pairs = [
            pull_parts(topic, connection * workload.slots + slot, FIRST_OPAQUE + slot, account=account)
            for connection in range(workload.connections)
            for slot in range(workload.slots)
        ]
        frames, tails = [head for head, _ in pairs], [tail for _, tail in pairs]
    if len({len(frame) for frame in frames}) != 1 or len({len(tail) for tail in tails}) > 1:
        raise LoadError("frames of one workload differ in size")
    return frames, tails
