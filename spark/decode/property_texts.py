"""Property texts of many records in one array, and the ends of their entries.

The text is ``name 0x01 value 0x02 ...``; a missing last 0x02 is added.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.

All entries are found once, for any number of names.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.binary_array import Positions
from spark.decode.engine import gather
from sprocket.remoting.message.properties import VALUE_END_OCTET

# Bytes after the texts, so that a comparison may read past the last one.
PADDING: Final = 64


class PropertyTexts:
    """Copies of property texts in `octets`: text i begins at `begins`[i], and its last separator is at `last_ends`[i].

    `entry_ends` are the ends of all entries.  `PADDING` bytes follow the last text.
    """

    def __init__(self, data: pa.Buffer, begins: Positions, ends: Positions) -> None:
        """Copy the texts [`begins`, `ends`) of `data`, in order, and add missing separators."""
        sizes = ends - begins
        self.begins = np.zeros(sizes.size, np.int64)
        np.cumsum(sizes[:-1] + 1, out=self.begins[1:])
        gaps = self.begins + sizes
        self.octets = _end_to_end(data, begins, ends, gaps)
        lacks = (sizes == 0) | (self.octets[gaps - 1] != VALUE_END_OCTET)
        self.last_ends: Positions = gaps - 1 + lacks
        self.octets[self.last_ends] = VALUE_END_OCTET
        self.entry_ends = self.places_of(VALUE_END_OCTET)

    def __len__(self) -> int:
        return self.begins.size

    def places_of(self, octet: int) -> Positions:
        """Return the places of `octet` in the texts."""
        return np.flatnonzero(self.octets == octet)


def _end_to_end(data: pa.Buffer, begins: Positions, ends: Positions, gaps: Positions) -> npt.NDArray[np.uint8]:
    """Return the texts with a zero after each, at `gaps`, and padding after the last."""
    octets = np.zeros((int(gaps[-1]) + 1 if gaps.size else 0) + PADDING, np.uint8)
    # Copy one more byte of each, in place of the zero; the data may end with the last text.
    held = gather(data, begins, np.minimum(ends + 1, data.size)).buffers()[2]
    if held is not None:
        octets[: held.size] = np.frombuffer(held, np.uint8)
    octets[gaps] = 0
    return octets
