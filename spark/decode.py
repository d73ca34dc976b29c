"""Records to Arrow: a run of positions in a segment becomes columns, with no Python object per record.

No Spark here.  A `Chunk` gathers the fixed fields of its records once, finds each variable part from the
lengths before it, and builds the columns that are asked for.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from remoting.message_record import FIXED_IPV4, SysFlag
from spark.binary_array import as_text, gather
from spark.columns import COLUMN_TYPES, TIMESTAMP
from spark.inflate import compression_names, inflate_bodies
from spark.properties import PropertyTable
from spark.segment import MIN_RECORD_BYTES, Positions, Segment
from sprocket.common.errors import CorruptRecord
from sprocket.common.limits import MAX_INFLATED_BYTES
from store.layout import MAGIC_V1, MAGIC_V2, RECORD_FIXED_DTYPE, STORE_TIMESTAMP

CHUNK_ROWS: Final = 16384
_IPV4_HOST_BYTES: Final = 8
_IPV6_HOST_BYTES: Final = 20
_MAX_TIMESTAMP_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last that Python has

# What stands before the body when both hosts are IPv4.
_RECORD_IPV4_DTYPE: Final = np.dtype(
    [
        *RECORD_FIXED_DTYPE.descr,
        ("born_host", f"V{_IPV4_HOST_BYTES}"),
        ("store_timestamp", ">i8"),
        ("store_host", f"V{_IPV4_HOST_BYTES}"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
assert _RECORD_IPV4_DTYPE.itemsize == FIXED_IPV4.size <= MIN_RECORD_BYTES


@dataclass(frozen=True)
class DecodeOptions:
    """What a query wants beside its columns."""

    broker_name: str = ""
    inflate_bodies: bool = False
    inflate_max_bytes: int = MAX_INFLATED_BYTES
    drop_malformed: bool = False


class Chunk:
    """Records of `segment` at `positions` (in order), to be read as columns.

    Records whose transaction was never committed (prepared halves and rollback marks) are left out, as the
    ConsumeQueue leaves them out.  A record whose lengths do not add up raises CorruptRecord, or is dropped
    with `drop_malformed`.
    """

    def __init__(self, segment: Segment, positions: Positions, options: DecodeOptions) -> None:
        self._segment = segment
        self._options = options
        self._take(positions, self._gather(positions))
        self._drop_malformed_and_uncommitted()

    def __len__(self) -> int:
        return int(self._positions.size)

    def column(self, name: str) -> pa.Array:
        """The column `name` of `COLUMN_TYPES`; every call decodes it anew, `filter` keeps what is shared."""
        return _COLUMNS[name](self)

    def filter(self, keep: npt.NDArray[np.bool_]) -> None:
        """Keep only the records where `keep` is true."""
        self._take(self._positions[keep], self._fixed[keep])

    # -- fixed fields ------------------------------------------------------------------------------------

    def _gather(self, positions: Positions) -> npt.NDArray[np.void]:
        size = FIXED_IPV4.size
        every = np.ndarray((self._segment.size - size + 1,), f"V{size}", self._segment.data, 0, (1,))
        return every[positions].view(_RECORD_IPV4_DTYPE)

    def _take(self, positions: Positions, fixed: npt.NDArray[np.void]) -> None:
        """Set the records.  Positions are signed 64-bit: a sum of two lengths cannot overflow."""
        for name in ("properties", "topic_bounds", "properties_bounds", "body_bounds"):
            self.__dict__.pop(name, None)
        self._positions = positions
        self._fixed = fixed
        self.sys_flags: npt.NDArray[np.int32] = fixed["sys_flag"].astype(np.int32)
        self._born_shift = self._host_shift(SysFlag.BORN_HOST_V6)
        self._store_shift = self._born_shift + self._host_shift(SysFlag.STORE_HOST_V6)

    def _host_shift(self, flag: SysFlag) -> Positions | int:
        """How many bytes later the fields after a host stand, for each record; plain 0 if all are IPv4."""
        is_ipv6 = self.sys_flags & flag != 0
        return is_ipv6 * (_IPV6_HOST_BYTES - _IPV4_HOST_BYTES) if is_ipv6.any() else 0

    def integers(self, field: str) -> npt.NDArray[np.int64] | npt.NDArray[np.int32]:
        """A fixed field in native byte order, wherever the hosts' sizes put it."""
        kind, at = _RECORD_IPV4_DTYPE.fields[field][:2]  # type: ignore[index]  # numpy types it as optional
        after_born = at > RECORD_FIXED_DTYPE.itemsize
        after_store = at > _RECORD_IPV4_DTYPE.fields["store_host"][1]  # type: ignore[index]
        shift = self._store_shift if after_store else self._born_shift if after_born else 0
        values = self._fixed[field]
        if not isinstance(shift, int):
            # A damaged record can point past the end; it is dropped for its lengths, not for this.
            at_most = self._segment.size - kind.itemsize
            every = np.ndarray((at_most + 1,), kind, self._segment.data, 0, (1,))
            values = every[np.minimum(self._positions + at + shift, at_most)]
        return values.astype(kind.newbyteorder("="))

    # -- variable parts ----------------------------------------------------------------------------------

    @cached_property
    def body_bounds(self) -> tuple[Positions, Positions]:
        begins = self._positions + FIXED_IPV4.size + self._store_shift
        return begins, np.add(begins, self.integers("body_length"), dtype=np.int64)

    @cached_property
    def topic_bounds(self) -> tuple[Positions, Positions]:
        ends = self.body_bounds[1]
        two_bytes = self._pairs_at(ends)
        is_v2 = self._fixed["magic"] == MAGIC_V2
        if is_v2.any():
            begins = ends + np.where(is_v2, 2, 1)
            return begins, begins + np.where(is_v2, two_bytes, (two_bytes >> 8) & 0xFF)
        return ends + 1, ends + 1 + ((two_bytes >> 8) & 0xFF)

    @cached_property
    def properties_bounds(self) -> tuple[Positions, Positions]:
        ends = self.topic_bounds[1]
        return ends + 2, ends + 2 + self._pairs_at(ends)

    @cached_property
    def properties(self) -> PropertyTable:
        return PropertyTable(self._buffer, *self.properties_bounds)

    @property
    def _buffer(self) -> pa.Buffer:
        return pa.py_buffer(self._segment.data)

    def _pairs_at(self, positions: Positions) -> npt.NDArray[np.int64]:
        """The signed 16-bit integer at each position; positions outside the file read some other place."""
        every = np.ndarray((self._segment.size - 1,), ">i2", self._segment.data, 0, (1,))
        return every[np.clip(positions, 0, self._segment.size - 2)].astype(np.int64)

    def parts(self, bounds: tuple[Positions, Positions]) -> pa.Array:
        return gather(self._buffer, *bounds)

    # -- which records count -----------------------------------------------------------------------------

    def _drop_malformed_and_uncommitted(self) -> None:
        well_formed = self._well_formed()
        if not well_formed.all() and not self._options.drop_malformed:
            position = int(self._positions[np.argmin(well_formed)])
            raise CorruptRecord(
                self._segment.start + position,
                f"the record's lengths, magic or own offset do not hold ({self._segment.path}); "
                "option mode=DROPMALFORMED reads on without it",
            )
        state = self.sys_flags & SysFlag.TRANSACTION_ROLLBACK
        keep = well_formed & ((state == 0) | (state == SysFlag.TRANSACTION_COMMIT))
        if not keep.all():
            self.filter(keep)

    def _well_formed(self) -> npt.NDArray[np.bool_]:
        fixed, positions = self._fixed, self._positions
        ends = positions + fixed["total_size"]
        body, topic, properties = self.body_bounds, self.topic_bounds, self.properties_bounds
        return (  # type: ignore[no-any-return]  # numpy's & of comparisons is Any
            ((fixed["magic"] == MAGIC_V1) | (fixed["magic"] == MAGIC_V2))
            & (fixed["physical_offset"] == positions + self._segment.start)
            & (body[1] >= body[0])
            & (topic[1] >= topic[0])
            & (properties[1] >= properties[0])
            & (properties[1] == ends)
            & (ends <= self._segment.size)
        )

    # -- columns -----------------------------------------------------------------------------------------

    def bodies(self) -> pa.Array:
        bodies = self.parts(self.body_bounds)
        if not self._options.inflate_bodies:
            return bodies
        limit = self._options.inflate_max_bytes
        return inflate_bodies(bodies, self.sys_flags, self._positions + self._segment.start, limit)

    def broker_names(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._options.broker_name), len(self))

    def message_ids(self) -> pa.Array:
        ids = self.properties.find(b"UNIQ_KEY")
        return pc.fill_null(ids, self._offset_message_ids()) if ids.null_count else ids

    def _offset_message_ids(self) -> pa.Array:
        """Store host, port and physical offset in hexadecimal (`MessageDecoder.createMessageId`)."""
        offsets = (self._positions + self._segment.start).tolist()
        hosts = self._host_bytes("store_host")
        return pa.array(
            [f"{host.hex()}{at:016x}".upper() for host, at in zip(hosts, offsets, strict=True)], pa.string()
        )

    def hosts(self, field: str) -> pa.Array:
        texts: dict[bytes, str] = {}
        hosts = self._host_bytes(field)
        for host in set(hosts):
            address = ipaddress.ip_address(host[:-4])
            text = f"[{address}]" if address.version == 6 else str(address)
            texts[host] = f"{text}:{int.from_bytes(host[-4:], 'big', signed=True)}"
        return pa.array([texts[host] for host in hosts], pa.string())

    def _host_bytes(self, field: str) -> list[bytes]:
        """Address and port of each record as they lie in the log: 8 or 20 bytes."""
        is_store = field == "store_host"
        flag = SysFlag.STORE_HOST_V6 if is_store else SysFlag.BORN_HOST_V6
        begins = self._positions + RECORD_FIXED_DTYPE.itemsize
        if is_store:
            begins = begins + _IPV4_HOST_BYTES + STORE_TIMESTAMP.size + self._born_shift
        sizes = np.where(self.sys_flags & flag, _IPV6_HOST_BYTES, _IPV4_HOST_BYTES)
        hosts: list[bytes] = gather(self._buffer, begins, begins + sizes).to_pylist()
        return hosts

    def timestamps(self, field: str) -> pa.Array:
        """Milliseconds of `field` as timestamps; null where they are no date (a producer may send anything)."""
        milliseconds = self.integers(field)
        valid = (milliseconds >= 0) & (milliseconds <= _MAX_TIMESTAMP_MS)
        return pa.array(milliseconds * 1000, pa.int64(), mask=None if valid.all() else ~valid).cast(TIMESTAMP)

    def sizes(self) -> pa.Array:
        begins, ends = self.body_bounds
        return pa.array((ends - begins).astype(np.int32), pa.int32())


def _fixed(field: str) -> Callable[[Chunk], pa.Array]:
    return lambda chunk: pa.array(chunk.integers(field))


_COLUMNS: Final[dict[str, Callable[[Chunk], pa.Array]]] = {
    "topic": lambda chunk: as_text(chunk.parts(chunk.topic_bounds)),
    "queueId": _fixed("queue_id"),
    "queueOffset": _fixed("queue_offset"),
    "physicalOffset": _fixed("physical_offset"),
    "bornTimestamp": lambda chunk: chunk.timestamps("born_timestamp"),
    "storeTimestamp": lambda chunk: chunk.timestamps("store_timestamp"),
    "tags": lambda chunk: chunk.properties.find(b"TAGS"),
    "keys": lambda chunk: chunk.properties.find(b"KEYS"),
    "body": Chunk.bodies,
    "brokerName": Chunk.broker_names,
    "properties": lambda chunk: chunk.properties.maps(),
    "msgId": Chunk.message_ids,
    "bodyString": lambda chunk: as_text(chunk.bodies()),
    "compression": lambda chunk: compression_names(chunk.sys_flags),
    "bodySize": Chunk.sizes,
    "storeSize": _fixed("total_size"),
    "bodyCRC": _fixed("body_crc"),
    "flag": _fixed("flag"),
    "sysFlag": lambda chunk: pa.array(chunk.sys_flags),
    "bornHost": lambda chunk: chunk.hosts("born_host"),
    "storeHost": lambda chunk: chunk.hosts("store_host"),
    "reconsumeTimes": _fixed("reconsume_times"),
    "preparedTransactionOffset": _fixed("prepared_transaction_offset"),
}
assert _COLUMNS.keys() == COLUMN_TYPES.keys()
