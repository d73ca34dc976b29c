"""Times of protobuf in milliseconds, and back; pure."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

# Seconds that a Timestamp may have: the years 1 to 9999.  Source: google/protobuf/timestamp.proto.
_MIN_S, _MAX_S = -62_135_596_800, 253_402_300_799


def duration(milliseconds: int) -> Duration:
    """Return a duration."""
    return Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def duration_ms(value: Duration) -> int:
    """Return the milliseconds of a duration."""
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time since the epoch."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def timestamp_ms(value: Timestamp) -> int:
    """Return the milliseconds since the epoch."""
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


def is_timestamp(value: Timestamp) -> bool:
    """Return whether the fields are in range."""
    return bool(_MIN_S <= value.seconds <= _MAX_S and 0 <= value.nanos < 1_000_000_000)
