"""Files that `mqadmin` commands read and write: lists of configurations, and exports."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, TypeVar

import click

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket_cli.client_session import CommandFailed, WrongUsage

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_MAX_FILE_BYTES: Final = 16 << 20  # the largest frame that a broker accepts


def file_option(content: str) -> Callable[[F], F]:
    """Add -f to a command, which receives the path of a file with `content` in the argument `path`."""
    return click.option(
        "-f", "--filename", "path", required=True, type=click.Path(path_type=Path), help=f"Path of a file: {content}"
    )


def configs_in_file(path: Path, config_type: type[T]) -> list[T]:
    """Return the JSON list in a file.  Raises WrongUsage for a file that cannot be read or is no such list."""
    data = file_content(path)
    try:
        return loads(data, list[config_type])  # type: ignore[valid-type]
    except ProtocolError as error:
        raise WrongUsage(f"{path} is no JSON list of {config_type.__name__}: {error}") from None


def file_content(path: Path) -> bytes:
    """Return the bytes of a file.  Raises WrongUsage for one that cannot be read or is too large for a request."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > _MAX_FILE_BYTES:
            raise WrongUsage(f"{path} has {size_bytes} bytes, the limit is {_MAX_FILE_BYTES}; use several files")
        return path.read_bytes()
    except FileNotFoundError:
        raise WrongUsage(f"the file path {path} does not exists") from None
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from None


def write_temporary(name: str, content: bytes) -> Path:
    """Write a file into the temporary directory, and return its path.

    An existing file is overwritten, but no link is followed: everybody may put links there.  Raises CommandFailed.
    """
    path = Path(gettempdir()) / name
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}; choose a folder with TMPDIR") from None
    return path


export_option = click.option(
    "-f",
    "--filePath",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("/tmp/rocketmq/export"),  # RocketMQ's default
    help="Folder of the file.",
)


def write_export(folder: Path, name: str, content: object) -> None:
    """Write `content` in fastjson's pretty format to a file in `folder`, and say so.

    Folders are created.  Raises CommandFailed if the file cannot be written.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pretty(content))
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}; choose a folder with -f") from None
    click.echo(f"export {path} success")
