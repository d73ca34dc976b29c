"""Decoding of bodies: what all decoders share, and the decoders of binary and text.

A decoder takes the bodies of some messages.  It returns the columns of the rows that it could read, and the reasons for
the others.  A row that fails does not affect the others.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]
NO_BODY: Final = "the message has no body"
_MAX_REASON_CHARACTERS: Final = 300
_ROW: Final = re.compile(r" in row (\d{1,9})$")


@dataclass(frozen=True)
class Failure:
    """Row `row` of the bodies, and the reason why it could not be decoded."""

    row: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """Columns of the rows that were decoded; `kept` are their numbers, None for all rows."""

    columns: list[pa.Array]
    kept: Rows | None
    failures: tuple[Failure, ...] = ()


class BodyDecoder(Protocol):
    """Decoder of one declared type; `fields` are the columns of a body."""

    @property
    def fields(self) -> pa.Schema: ...

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode `bodies` (binary) to columns of `fields`."""


class Binary:
    """Decoder that leaves bodies as they are."""

    fields = pa.schema([("body", pa.binary())])

    def decode(self, bodies: pa.Array) -> Decoded:
        return Decoded([bodies], None)


class Text:
    """Decoder of UTF-8."""

    fields = pa.schema([("body", pa.string())])

    def decode(self, bodies: pa.Array) -> Decoded:
        return decode_runs(bodies, self._run, [pa.string()])

    def _run(self, bodies: pa.Array) -> list[pa.Array]:
        return [bodies.cast(pa.string())]


def decode_runs(bodies: pa.Array, run: Callable[[pa.Array], list[pa.Array]], types: Iterable[pa.DataType]) -> Decoded:
    """Decode `bodies` with `run`, which takes several rows and raises ArrowInvalid if one of them is bad.

    After a success, the next call gets twice as many rows.  After a failure it gets the rows before the bad one if the
    error names that row, else half of the rows.  So good rows are decoded by columns, and rarely more than twice.
    """
    pieces: list[list[pa.Array]] = []
    kept: list[Rows] = []
    failures: list[Failure] = []
    at, size, went_well, suspect = 0, len(bodies), 1, -1
    while at < len(bodies):
        count = 1 if at == suspect else min(size, len(bodies) - at)
        try:
            columns = run(bodies.slice(at, count))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
            if count > 1:
                bad = _bad_row(error)
                suspect = -1 if bad is None else at + bad
                size = bad if bad is not None and 0 < bad < count else count // 2
                continue
            failures.append(Failure(at, reason_of(error)))
            size = 2 * went_well
        else:
            pieces.append(columns)
            kept.append(np.arange(at, at + count))
            went_well, size = count, 2 * count
        at += count
    if not failures and len(pieces) == 1:
        return Decoded(pieces[0], None)
    columns = [
        pa.concat_arrays([piece[index] for piece in pieces]) if pieces else pa.array([], kind)
        for index, kind in enumerate(types)
    ]
    return Decoded(columns, np.concatenate(kept) if kept else np.empty(0, np.int64), tuple(failures))


def _bad_row(error: Exception) -> int | None:
    """Return the row that an error's text names; None without one.  A body may become two rows, so it may be wrong."""
    found = _ROW.search(str(error))
    return int(found[1]) if found else None


def decode_each(
    bodies: pa.Array, read: Callable[[bytes], object], fields: pa.Schema, errors: tuple[type[Exception], ...]
) -> Decoded:
    """Decode bodies one by one with `read`, which returns the fields of a body by name or raises one of `errors`."""
    values: list[object] = []
    kept: list[int] = []
    failures: list[Failure] = []
    for row, body in enumerate(bodies.to_pylist()):
        try:
            values.append(read(body or b""))
        except errors as error:
            failures.append(Failure(row, reason_of(error)))
        else:
            kept.append(row)
    columns, bad = _converted(values, fields)
    if bad:
        failures += [Failure(kept[index], reason) for index, reason in bad.items()]
        kept = [row for index, row in enumerate(kept) if index not in bad]
    failures.sort(key=lambda failure: failure.row)
    return Decoded(columns, np.array(kept, np.int64) if failures else None, tuple(failures))


def _converted(values: list[object], fields: pa.Schema) -> tuple[list[pa.Array], dict[int, str]]:
    """Return `values` as columns, and by index why a value does not match the types."""
    kind = pa.struct(list(fields))
    bad: dict[int, str] = {}
    try:
        rows = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        good = []
        for index, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                bad[index] = reason_of(error)
            else:
                good.append(value)
        rows = pa.array(good, kind)
    return rows.flatten(), bad


def reason_of(error: Exception) -> str:
    """Return the error as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.removesuffix(" in row 0")[:_MAX_REASON_CHARACTERS]
