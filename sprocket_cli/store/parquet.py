"""Rows to and from Parquet.  Needs pyarrow, which comes with the extra `spark`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from sprocket.common.extras import install
from sprocket_cli.client_session import WrongUsage

if TYPE_CHECKING:
    from store.inspection.record_row import Row

_ROWS_AT_ONCE: Final = 4096
_INT64: Final = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "preparedTransactionOffset")
_INT32: Final = ("queueId", "flag", "sysFlag", "reconsumeTimes")


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet  # makes pyarrow.parquet an attribute
    except ImportError:
        raise WrongUsage(f"Parquet needs pyarrow: {install('spark')}, or use JSON lines") from None
    return pyarrow


class ParquetFile:
    """Writes rows, group by group."""

    def __init__(self, file: BinaryIO) -> None:
        pa = self._pa = _arrow()
        self._schema = pa.schema(
            [("topic", pa.string())]
            + [(name, pa.int32()) for name in _INT32]
            + [(name, pa.int64()) for name in _INT64]
            + [("bornHost", pa.string()), ("storeHost", pa.string())]
            + [("properties", pa.map_(pa.string(), pa.string())), ("body", pa.binary())]
        )
        self._writer = pa.parquet.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: "Sequence[Row]") -> None:
        """One row group."""
        import msgspec

        columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        names = {field.encode_name: field.name for field in msgspec.structs.fields(rows[0])} if rows else {}
        for encoded, name in names.items():
            columns[encoded] = [getattr(row, name) for row in rows]
        if rows:
            columns["properties"] = [list(row.properties.items()) for row in rows]
        arrays = [self._pa.array(columns[field.name], field.type) for field in self._schema]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writer.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file as maps.  Raises WrongUsage if `path` is no Parquet file."""
    pa = _arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise WrongUsage(f"{path}: is not a readable Parquet file: {error}") from None
