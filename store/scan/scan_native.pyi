from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import Buffer

SOURCES: Final[str]
LAYOUT: Final[dict[str, int]]
RECORD_FIXED: Final[dict[str, int]]
MAX_TOPIC_BYTES: Final[int]

def read_batch(
    data: Buffer,
    base: int,
    at: int,
    limit: int,
    arrays: tuple[Any, ...],
    max_records: int,
    *,
    check_crc: bool,
    require_seal: bool,
) -> tuple[int, list[bytes]]: ...
def tags_codes(
    data: Buffer, properties_at: Any, positions: Any, sizes: Any, codes: Any, count: int
) -> Sequence[int]: ...
def index_hashes(
    data: Buffer, columns: tuple[Any, ...], record: int, count: int, owners: Any, hashes: Any, room: int
) -> tuple[int, int]: ...
def chain(data: Buffer, at: int, end: int, positions: Any, most: int) -> tuple[int, int]: ...
def claimed_crcs(data: Any, properties_bytes: Any, properties_ends: Any, claims: Any, count: int) -> None: ...
def crcs_hold(data: Buffer, columns: tuple[Any, ...], holds: Any, count: int, *, require_seal: bool) -> None: ...
