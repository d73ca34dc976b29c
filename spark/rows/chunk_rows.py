"""Rows of a chunk of records: filtered, checked, inflated, with rows for damage."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark.decode.damage import damage_rows, log_damage
from spark.decode.decoder import Chunk, DecodeOptions
from spark.decode.inflate import InflatesTooMuch
from spark.rows.filters import RowFilter

Rows = tuple[list[pa.Array], int]
_BODY_COLUMNS = frozenset({"body", "bodyString"})


def chunk_rows(chunk: Chunk, columns: Sequence[str], rows: RowFilter, options: DecodeOptions) -> Iterator[Rows]:
    """Yield (one array per column, number of rows) of `chunk` filtered by `rows`: no batch, one, or several.

    Raises CorruptRecord for damage unless `options.drop_malformed`; with `options.corrupt_column` it becomes rows
    whose other columns are null.
    """
    rows.apply(chunk)
    reads_bodies = not _BODY_COLUMNS.isdisjoint(columns)
    if len(chunk) and _checks_crc(columns, options):
        chunk.check_crc()
    yield from _batches(chunk, columns, options, reads_bodies)
    if chunk.damage:
        log_damage(chunk.damage)
        if options.corrupt_column is not None and rows.passes_nulls():
            yield damage_rows(chunk.damage, columns, options.corrupt_column), len(chunk.damage)


def _checks_crc(columns: Sequence[str], options: DecodeOptions) -> bool:
    return not _BODY_COLUMNS.isdisjoint(columns) if options.check_crc is None else options.check_crc


def _batches(chunk: Chunk, columns: Sequence[str], options: DecodeOptions, reads_bodies: bool) -> Iterator[Rows]:
    waiting = [chunk]
    while waiting:
        part = waiting.pop()
        try:
            if reads_bodies and len(part):
                part.inflate()
        except InflatesTooMuch:
            waiting += reversed(part.halves())
            continue
        if part is not chunk:
            chunk.damage += [each for each in part.damage if each not in chunk.damage]
        if len(part):
            yield [_column(part, name, options) for name in columns], len(part)


def _column(chunk: Chunk, name: str, options: DecodeOptions) -> pa.Array:
    return pa.nulls(len(chunk), pa.string()) if name == options.corrupt_column else chunk.column(name)
