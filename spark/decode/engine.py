"""The one place where the decoder chooses between compiled functions and arrays.

Both give the same columns; `tests/spark/decode/test_twins.py` compares them.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark.decode import binary_array
from spark.decode.binary_array import Positions
from sprocket.engine.choice import native

if TYPE_CHECKING:
    from spark.decode.compiled import CompiledRecords

IS_COMPILED: Final = native("spark.decode.columns_native") is not None

if IS_COMPILED:
    from spark.decode.compiled import CompiledRecords, gather

    compiled_records = CompiledRecords.at
else:
    gather = binary_array.gather

    def compiled_records(data: pa.Buffer, start: int, positions: Positions) -> "CompiledRecords | None":
        """Return None: `spark.decode.record_parts` finds each part by arrays, when a column needs it."""
        return None


__all__ = ["IS_COMPILED", "compiled_records", "gather"]
