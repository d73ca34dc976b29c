"""`sprocket store export`: messages as lines of JSON or as Parquet."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from sprocket_cli.client_session import HELP, WrongUsage
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_options, store_errors
from sprocket_cli.store.selection import Walk, selection_of, selection_options

if TYPE_CHECKING:
    from store.inspection.record_row import Row
    from store.record.record import Record

# Size of a row group of Parquet, in rows and in bytes of bodies.
_GROUP_ROWS = 16 * 1024
_GROUP_BYTES = 32 * 1024 * 1024


@click.command(context_settings=HELP)
@click.argument("directory", type=DIRECTORY)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.  [default: stdout]"
)
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "parquet"]), help="[default: by the name of the output, else jsonl]"
)
@selection_options
@click.option("--inflate", is_flag=True, help="Inflate compressed bodies.")
@shape_options
def export(
    directory: Path, output: Path | None, form: str | None, inflate: bool, config: Path | None,
    segment_bytes: int | None, limit: int | None, **options: Any,
) -> None:  # fmt: skip
    """Write the messages of the store in DIRECTORY for other programs, or for `sprocket store import`.

    Messages that consumers never see, as those of uncommitted transactions, are left out.  The output file gets its
    name when it is complete.
    """
    form = form or ("parquet" if output is not None and output.suffix == ".parquet" else "jsonl")
    if form == "parquet" and output is None:
        raise WrongUsage("Parquet goes to a file: use -o FILE.parquet")
    selection = selection_of(options, only_visible=True)
    with store_errors():
        walk = Walk(directory, config, segment_bytes)
        with progress_bar("exporting", walk.total_bytes, quiet=output is None) as progress:
            rows = (_row(record, inflate) for record in walk.records(selection, limit, progress))
            count = _write_parquet(rows, output) if form == "parquet" and output else _write_lines(rows, output)
        walk.warn()
    click.echo(f"{count} messages exported" + (f" to {output}" if output else ""), err=True)


def _row(record: "Record", inflate: bool) -> "Row":
    from sprocket.client.compression import decompress
    from sprocket.common.errors import ClientError
    from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
    from store.inspection.record_row import row_of

    row = row_of(record)
    if inflate and row.sys_flag & SysFlag.COMPRESSED:
        # A body that cannot be inflated stays compressed and keeps its flag.
        with contextlib.suppress(ClientError):
            row.body = decompress(row.body, row.sys_flag)
            row.sys_flag &= ~int(SysFlag.COMPRESSED | COMPRESSION_MASK)
    return row


@contextlib.contextmanager
def _output(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that gets its name when it is complete."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_lines(rows: "Iterator[Row]", path: Path | None) -> int:
    from store.inspection.record_row import line_of

    count = 0
    with contextlib.ExitStack() as stack:
        # As text, whose control characters are escaped on a terminal.
        file = None if path is None else stack.enter_context(_output(path))
        for row in rows:
            line = line_of(row)
            if file is None:
                sys.stdout.write(line.decode())
            else:
                file.write(line)
            count += 1
    sys.stdout.flush()
    return count


def _write_parquet(rows: "Iterator[Row]", path: Path) -> int:
    from sprocket_cli.store.parquet import ParquetFile

    count = 0
    with _output(path) as file, ParquetFile(file) as parquet:
        held: list[Row] = []
        held_bytes = 0
        for row in rows:
            held.append(row)
            held_bytes += len(row.body)
            if len(held) >= _GROUP_ROWS or held_bytes >= _GROUP_BYTES:
                parquet.write(held)
                count, held, held_bytes = count + len(held), [], 0
        if held or not count:
            parquet.write(held)
        count += len(held)
    return count
