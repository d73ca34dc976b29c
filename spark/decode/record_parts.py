"""Parts of many records in their segment: fixed fields, bodies, topics, properties, messages in batches.

There is no Python object per record: the fixed fields are gathered once, and each variable part is found from the
lengths before it.

Chain, heads and CRCs are those of `store.scan`.  The parts are not a `store.scan.record_batch.RecordBatch`, because
that computes all its columns and ends at the first damaged record.  Here a part is computed when a column needs it, and
a read that skips damage goes on after it.
"""

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode import inner_batches
from spark.decode.engine import compiled_records, gather
from spark.decode.properties import PropertyTable
from spark.decode.property_texts import PropertyTexts
from spark.files.segment import Positions, Segment
from sprocket.remoting.message.record import FIXED_IPV4, V6_GROWTH_BYTES, SysFlag
from store.layout import MAGIC_V2, RECORD_FIXED_DTYPE, RECORD_IPV4_DTYPE
from store.scan.heads import heads_at

Integers = npt.NDArray[np.int64] | npt.NDArray[np.int32]

# For each field: its stored type, its place, and its native type.
_FIELDS: Final = {
    name: (kind, int(at), kind.newbyteorder("="))
    for name, (kind, at, *_) in RECORD_IPV4_DTYPE.fields.items()  # type: ignore[union-attr]  # numpy types it as optional
}

# Parts that are found once for all columns, until rows are left out.
_SHARED: Final = (
    "_fixed",
    "ends",
    "properties",
    "topic_bounds",
    "properties_bounds",
    "body_bounds",
    "stored_body_bounds",
    "stored_properties_bounds",
)


class RecordParts:
    """Records of `segment` at `positions` (in order), or the messages inside them.

    `inner` is the start of an inner message, -1 for a record that is one message; `places` is its place in the batch.
    Both are None while no record is a batch.
    """

    def __init__(self, segment: Segment, positions: Positions) -> None:
        self.segment = segment
        self.inner: Positions | None = None
        self.places: Positions | None = None
        self.take(positions)

    def __len__(self) -> int:
        return int(self.positions.size)

    def filter(self, keep: npt.NDArray[np.bool_]) -> None:
        """Keep only the rows where `keep` is true."""
        if self.inner is not None and self.places is not None:
            self.inner, self.places = self.inner[keep], self.places[keep]
        self.take(self.positions[keep], self._fixed[keep] if self.compiled is None else None)

    # -- fixed fields ------------------------------------------------------------------------------------

    @cached_property
    def _fixed(self) -> npt.NDArray[np.void]:
        """Fixed fields of the records, as if both hosts were IPv4."""
        return heads_at(self.segment.data, self.positions, RECORD_IPV4_DTYPE)

    def take(self, positions: Positions, fixed: npt.NDArray[np.void] | None = None) -> None:
        """Set the records, and their fixed fields if they are known.

        Positions are signed 64-bit: a sum of two lengths cannot overflow.
        """
        for name in _SHARED:
            self.__dict__.pop(name, None)
        self.positions = positions
        if fixed is not None:
            self._fixed = fixed
        self._integers: dict[str, Integers] = {}
        # None: parts are found by arrays.
        self.compiled = compiled_records(self.buffer, self.segment.start, positions) if self.inner is None else None
        self.sys_flags: npt.NDArray[np.int32]
        # The union of all flags: a flag that no record has needs no check of each.
        if self.compiled is not None:
            self.sys_flags, self.all_flags = self.compiled.sys_flags, self.compiled.all_flags
        else:
            self.sys_flags = self.integers("sys_flag").astype(np.int32, copy=False)
            self.all_flags = int(np.bitwise_or.reduce(self.sys_flags))
        self.born_shift = self._host_shift(SysFlag.BORN_HOST_V6)
        self.store_shift = self.born_shift + self._host_shift(SysFlag.STORE_HOST_V6)

    def _host_shift(self, flag: SysFlag) -> Positions | int:
        """Return the shift of the fields after a host, in bytes, for each record; plain 0 if all are IPv4."""
        if not self.all_flags & flag:
            return 0
        shift: Positions = (self.sys_flags & flag != 0) * V6_GROWTH_BYTES
        return shift

    def integers(self, field: str) -> Integers:
        """Return a fixed field in native byte order.  The array is shared: do not write to it."""
        values = self._integers.get(field)
        if values is None:
            values = self._integers[field] = self._native(field)
        return values

    def _native(self, field: str) -> Integers:
        kind, at, native = _FIELDS[field]
        after_born = at > RECORD_FIXED_DTYPE.itemsize
        after_store = at > _FIELDS["store_host"][1]
        shift = self.store_shift if after_store else self.born_shift if after_born else 0
        if self.compiled is not None and isinstance(shift, int):
            return self.compiled.field(at, native)
        values = self._fixed[field]
        if not isinstance(shift, int):
            # A damaged record can point past the end; the check of its lengths drops it later.
            at_most = self.segment.size - kind.itemsize
            every = np.ndarray((at_most + 1,), kind, self.segment.data, 0, (1,))
            values = every[np.minimum(self.positions + at + shift, at_most)]
        return values.astype(native)

    # -- variable parts ----------------------------------------------------------------------------------

    @cached_property
    def ends(self) -> Positions:
        """Ends of the records, by their sizes."""
        if self.compiled is not None:
            return self.compiled.ends
        return self.positions + self.integers("total_size")

    @cached_property
    def stored_body_bounds(self) -> tuple[Positions, Positions]:
        """Bounds of the record's body, also if that holds a batch."""
        if self.compiled is not None:
            return self.compiled.bodies
        begins = self.positions + FIXED_IPV4.size + self.store_shift
        return begins, np.add(begins, self.integers("body_length"), dtype=np.int64)

    @cached_property
    def topic_bounds(self) -> tuple[Positions, Positions]:
        if self.compiled is not None:
            return self.compiled.topics
        ends = self.stored_body_bounds[1]
        is_v2 = self.integers("magic") == MAGIC_V2
        octets = self._octets()
        if is_v2.any():
            two_bytes = _pairs_at(octets, ends)
            begins = ends + np.where(is_v2, 2, 1)
            return begins, begins + np.where(is_v2, two_bytes, (two_bytes >> 8) & 0xFF)
        begins = ends + 1
        return begins, begins + octets.take(ends, mode="clip")

    @cached_property
    def stored_properties_bounds(self) -> tuple[Positions, Positions]:
        if self.compiled is not None:
            return self.compiled.properties
        begins = self.topic_bounds[1] + 2
        return begins, begins + _pairs_at(self._octets(), self.topic_bounds[1])

    @cached_property
    def body_bounds(self) -> tuple[Positions, Positions]:
        if self.inner is None:
            return self.stored_body_bounds
        begins, ends = inner_batches.bodies(memoryview(self.segment.data), np.maximum(self.inner, 0))
        is_inner = self.inner >= 0
        return (
            np.where(is_inner, begins, self.stored_body_bounds[0]),
            np.where(is_inner, ends, self.stored_body_bounds[1]),
        )

    @cached_property
    def properties_bounds(self) -> tuple[Positions, Positions]:
        if self.inner is None:
            return self.stored_properties_bounds
        begins = np.where(self.inner >= 0, self.body_bounds[1], self.topic_bounds[1])
        return begins + 2, begins + 2 + _pairs_at(self._octets(), begins)

    @cached_property
    def properties(self) -> PropertyTable:
        return PropertyTable(PropertyTexts(self.buffer, *self.properties_bounds))

    def property_values(self, name: bytes) -> pa.Array:
        """Return the value of a property of each row, as strings; null if a row has none."""
        return self.properties.find(name) if self.compiled is None else self.compiled.property_values(name)

    @cached_property
    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.segment.data)

    def _octets(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.segment.data, np.uint8)

    def topics(self) -> pa.Array:
        """Return the topics as bytes."""
        return self.parts(self.topic_bounds)

    def parts(self, bounds: tuple[Positions, Positions]) -> pa.Array:
        """Return parts of records; all rows of one record have the same part."""
        if self.inner is None:
            return gather(self.buffer, *bounds)
        first, of_row = self.records()
        return gather(self.buffer, bounds[0][first], bounds[1][first]).take(pa.array(of_row))

    def records(self) -> tuple[Positions, Positions]:
        """Return the first row of each record, and the index of its record for each row."""
        if self.inner is None:
            rows = np.arange(len(self))
            return rows, rows
        is_first = np.diff(self.positions, prepend=-1) != 0
        return np.flatnonzero(is_first), np.cumsum(is_first) - 1


def _pairs_at(octets: npt.NDArray[np.uint8], positions: Positions) -> npt.NDArray[np.int64]:
    """Return the signed 16-bit integer at each position; a position outside of `octets` gives any value."""
    # Two gathers of bytes cost less than one of unaligned integers.
    pairs = np.empty((positions.size, 2), np.uint8)
    pairs[:, 0], pairs[:, 1] = octets.take(positions, mode="clip"), octets.take(positions + 1, mode="clip")
    return pairs.view(">i2")[:, 0].astype(np.int64)
