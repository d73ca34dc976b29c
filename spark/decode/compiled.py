"""The compiled twins of this package's functions.

`spark.decode.engine` imports this module if the compiled engine is in use.
"""

from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode import columns_native as columns
from spark.decode.binary_array import Positions, as_text
from sprocket.remoting.message.properties import NAME_END_BYTES
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from store.scan.compiled import integers

Integers = npt.NDArray[np.int64] | npt.NDArray[np.int32]

_HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()


class CompiledRecords:
    """Records of `data` at `positions` that are well-formed, with the bounds of their parts.

    `all_flags` is the union of their `sys_flags`; `has_halves`: some record is in the topic of half messages.
    """

    def __init__(self, data: pa.Buffer, positions: Positions, rows: npt.NDArray[np.int64]) -> None:
        """`rows` are for what `columns.record_bounds` writes."""
        self._data = data
        self._positions = positions
        self._rows = rows
        self.sys_flags: npt.NDArray[np.int32] = np.empty(positions.size, np.int32)
        self.all_flags = 0
        self.has_halves = False

    @classmethod
    def at(cls, data: pa.Buffer, start: int, positions: Positions) -> Self | None:
        """Return the records at `positions` of `data`, whose first byte has the physical offset `start`.

        Return None if a record is damaged or has an unusually long topic: the caller reads them by arrays then.
        """
        count = positions.size
        found = cls(data, integers(positions), np.empty((columns.BOUND_ROWS, count), np.int64))
        done, found.all_flags, found.has_halves = columns.record_bounds(
            data, start, found._positions, found._rows, found.sys_flags, count, _HALF_TOPIC
        )
        return found if done == count else None

    @property
    def ends(self) -> Positions:
        ends: Positions = self._rows[0]
        return ends

    @property
    def bodies(self) -> tuple[Positions, Positions]:
        return self._rows[1], self._rows[2]

    @property
    def topics(self) -> tuple[Positions, Positions]:
        return self._rows[3], self._rows[4]

    @property
    def properties(self) -> tuple[Positions, Positions]:
        return self._rows[5], self._rows[0]

    def field(self, at: int, kind: np.dtype[np.signedinteger]) -> Integers:
        """Return the integer that is `at` bytes into each record, as an array of the native type `kind`."""
        values: Integers = np.empty(self._positions.size, kind)
        columns.fixed_fields(self._data, self._positions, at, values, values.size, kind.itemsize)
        return values

    def crcs_hold(self) -> npt.NDArray[np.bool_]:
        """Return whether the CRC of each record holds; the twin of `store.scan.plain.crcs_hold`."""
        holds = np.empty(self._positions.size, np.bool_)
        columns.crcs_of_bounds(self._data, self._positions, self._rows, holds, holds.size)
        return holds

    def property_values(self, name: bytes) -> pa.Array:
        """Return the value of the property `name` of each record, as strings; null if a record has none."""
        return property_values(self._data, *self.properties, name)


def gather(
    data: pa.Buffer, begins: Positions, ends: Positions, present: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return a binary array of ``data[begin:end]`` for each pair; the twin of `spark.decode.binary_array.gather`."""
    count = begins.size
    begins, ends = integers(begins), integers(ends)
    offsets = np.empty(count + 1, np.int32)
    total = columns.text_offsets(data.size, begins, ends, offsets, count)
    values = np.empty(total + columns.SPARE_TEXT_BYTES, np.uint8)
    columns.copy_texts(data, begins, offsets, values, count)
    validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, pa.py_buffer(offsets), pa.py_buffer(values[:total])])


def property_values(data: pa.Buffer, begins: Positions, ends: Positions, name: bytes) -> pa.Array:
    """Return the value of `name` in each of the properties [`begins`, `ends`), as strings; null where there is none.

    The twin of `spark.decode.properties.PropertyTable.find`.
    """
    count = begins.size
    value_begins, value_ends = np.empty(count, np.int64), np.empty(count, np.int64)
    present = np.empty(count, np.bool_)
    number = columns.find_values(
        data, integers(begins), integers(ends), name + NAME_END_BYTES, value_begins, value_ends, present, count
    )
    if not number:
        return pa.nulls(count, pa.string())
    return as_text(gather(data, value_begins, value_ends, None if number == count else present))
