from typing import Final

import numpy as np
import numpy.typing as npt

SOURCES: Final[str]
MAX_KEYS: Final[int]

def key_hashes_of(
    data: memoryview,
    positions: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    properties_at: npt.NDArray[np.int64],
    sys_flags: npt.NDArray[np.int32],
    topic_index: npt.NDArray[np.int64],
    prefixes: npt.NDArray[np.uint32],
    begin: int,
    key_hashes: npt.NDArray[np.int32],
    records: npt.NDArray[np.int64],
) -> tuple[int, int]: ...
