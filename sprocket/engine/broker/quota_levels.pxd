# The level of a bucket of a quota, read and changed in place.  Its twin is `broker/quota/bucket.py`.

from libc.math cimport ceil
from libc.stdint cimport int64_t

cdef enum:
    # What `Bucket.state` has at each index.
    LEVEL
    READ_AT_S
    RATE
    BURST
    IS_SOFT
    COUNTS_BYTES
    PLACE  # of the bucket among those of an append


cdef inline int64_t tokens_left(double *state, double now_s) noexcept nogil:
    """Return what `Bucket.left` returns at `now_s`: without a bound, 1 << 62."""
    cdef double level = state[LEVEL]
    if state[IS_SOFT] != 0:
        return <int64_t> 1 << 62
    if now_s > state[READ_AT_S]:
        level = min(state[BURST], level + (now_s - state[READ_AT_S]) * state[RATE])
        state[LEVEL], state[READ_AT_S] = level, now_s
    return <int64_t> ceil(level - 1e-6) if level > 0 else 0
