"""`sprocket store dump`: records as lines of JSON."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from sprocket.client.compression import decompress
from sprocket.common.errors import ClientError
from sprocket.common.limits import MAX_INFLATED_BYTES
from sprocket_cli.client_session import HELP
from sprocket_cli.exit_codes import FAILURE
from sprocket_cli.store.commands import DIRECTORY, shape_options, store_errors
from sprocket_cli.store.selection import Walk, selection_of, selection_options
from store.inspection.record_row import base64_text, dump_of
from store.record.record import Record


@click.command(context_settings=HELP)
@click.argument("directory", type=DIRECTORY)
@click.option("--offset", type=click.IntRange(0), help="Print only the record at this physical offset.")
@selection_options
@click.option(
    "--body", type=click.Choice(["text", "base64", "none"]), default="text", show_default=True,
    help="Form of bodies; with text, a body that is no UTF-8 is base64.",
)  # fmt: skip
@click.option("--raw", is_flag=True, help="Show compressed bodies as they are stored.")
@click.option(
    "--inflate-max-bytes", type=click.IntRange(1), default=MAX_INFLATED_BYTES, show_default=True,
    help="Maximum size of an inflated body.",
)  # fmt: skip
@shape_options
def dump(
    directory: Path, offset: int | None, body: str, raw: bool, inflate_max_bytes: int, config: Path | None,
    segment_bytes: int | None, limit: int | None, **options: Any,
) -> None:  # fmt: skip
    """Print the records of the store in DIRECTORY in log order, one JSON object per line.

    Records of unfinished transactions are included.  Exit status: 0, or 1 if no record begins at --offset.
    """
    selection = selection_of(options)
    if offset is not None:
        selection, limit = replace(selection, from_offset=offset, to_offset=None), 1
    found = False
    with store_errors():
        walk = Walk(directory, config, segment_bytes)
        encode = msgspec.json.Encoder().encode
        try:
            for record in walk.records(selection, limit):
                if offset is not None and record.physical_offset != offset:
                    break
                found = True
                text, encoding = _body(record, body, raw, inflate_max_bytes)
                sys.stdout.write(encode(dump_of(record, text, encoding)).decode() + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe, as `head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        walk.warn()
    if offset is not None and not found:
        click.echo(f"Error: no record begins at physical offset {offset}", err=True)
        sys.exit(FAILURE)


def _body(record: Record, form: str, raw: bool, limit_bytes: int) -> tuple[str | None, str]:
    """Return the body as text, and the encoding of that text."""
    if form == "none":
        return None, ""
    content, note = bytes(record.body), ""
    if not raw:
        try:
            content = decompress(content, record.sys_flag, limit_bytes)
        except ClientError as error:
            note = f", as stored: {error}"
    if form == "text":
        try:
            return content.decode(), f"text{note}"
        except UnicodeDecodeError:
            pass
    return base64_text(content), f"base64{note}"
