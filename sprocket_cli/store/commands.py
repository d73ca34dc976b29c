"""`sprocket store`: the group of its commands, and helpers that they share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sprocket.common.errors import StoreError
from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage, option_set, wrong_usage
from sprocket_cli.exit_codes import DISK
from sprocket_cli.lazy_group import LazyGroup

if TYPE_CHECKING:
    from store.inspection.inspected_store import StoreShape

DIRECTORY = click.Path(path_type=Path)


class DiskTrouble(CommandFailed):
    """Files that cannot be read or written.  Ends the command with a message on stderr."""

    exit_code = DISK


# Where each command is.
_COMMANDS: Final = {
    "backup": "sprocket_cli.store.backup:backup",
    "check": "sprocket_cli.store.check:check",
    "dump": "sprocket_cli.store.dump:dump",
    "export": "sprocket_cli.store.export:export",
    "import": "sprocket_cli.store.import_messages:import_",
    "repair": "sprocket_cli.store.repair:repair",
    "restore": "sprocket_cli.store.backup:restore",
    "stat": "sprocket_cli.store.stat:stat",
    "verify": "sprocket_cli.store.backup:verify",
}


@click.group(cls=LazyGroup, places=_COMMANDS, context_settings=HELP)
def store() -> None:
    """Check, repair, back up, list, export and import a store directory (storePathRootDir).

    Only repair and import write to a store, and only to a stopped one.  The others also read one that a broker uses.
    """


# Sizes of files and paths, which the files themselves do not always show.
shape_options = option_set(
    click.option(
        "-c",
        "--configFile",
        "config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The broker's configuration: sizes of files, delay levels, storePathCommitLog.",
    ),
    click.option("--segment-bytes", type=click.IntRange(4096), help="The store's mappedFileSizeCommitLog."),
)


def shape_of(config: Path | None, segment_bytes: int | None) -> "StoreShape":
    """Return the options as a `StoreShape`.  Raises WrongUsage for a configuration that cannot be read."""
    from store.inspection.inspected_store import StoreShape

    if config is None:
        return StoreShape(segment_bytes=segment_bytes)
    from sprocket_cli.server.server_config import broker_configuration
    from store.config.store_config import StoreConfig

    with wrong_usage():
        settings = broker_configuration(config, None).of(StoreConfig)
    return StoreShape(
        segment_bytes=segment_bytes or settings.mapped_file_size_commit_log,
        queue_file_bytes=settings.consume_queue_file_bytes,
        batch_queue_file_bytes=settings.batch_consume_queue_file_bytes,
        index_slots=settings.max_hash_slot_num,
        index_units=settings.max_index_num,
        delay_levels=settings.message_delay_level,
        commit_log=settings.store_path_commit_log,
        max_message_bytes=settings.max_message_size,
    )


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn an error of the store or of the system into a message and an exit status."""
    try:
        yield
    except StoreError as error:
        raise (WrongUsage if "is no store" in str(error) else DiskTrouble)(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DiskTrouble(str(error)) from None


@contextmanager
def progress_bar(title: str, total_bytes: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr if that is a terminal.  Yields a function that takes the number of bytes just processed."""
    import sys

    if quiet or not sys.stderr.isatty() or not total_bytes:
        yield lambda size_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.__stderr__), transient=True) as progress:
        task = progress.add_task(title, total=total_bytes)
        yield lambda size_bytes: progress.advance(task, size_bytes)


def size_text(size_bytes: int) -> str:
    """Return ``1.4 GiB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
