"""Columns of numbers, one for each record of a part of the log."""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]


class Chain(NamedTuple):
    """Positions of records that follow one another, and the first position that does not continue the chain."""

    positions: Integers
    stop: int
