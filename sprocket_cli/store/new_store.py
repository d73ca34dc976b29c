"""A new store that an import fills with a log, as a slave does."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from sprocket.common.errors import StoreError
from sprocket_cli.client_session import CommandFailed, WrongUsage, print_found
from sprocket_cli.store.written_store import Notices, open_store
from store.config.store_config import StoreConfig

_APPEND_BYTES: Final = 1024 * 1024
_FLUSH_BYTES: Final = 64 * 1024 * 1024


def check_new(root: Path, directory: Path) -> None:
    """Raise WrongUsage unless the new store is another directory, without a log and without tables."""
    if directory.absolute() == root:
        raise WrongUsage(f"{directory}: the files are there: name a new directory with --to")
    for name in ("commitlog", "consumequeue", "config"):
        if any((directory / name).glob("*")):
            raise WrongUsage(f"{directory}: holds a store already ({name}): name a new directory with --to")


def fill(
    directory: Path, settings: StoreConfig, pieces: Iterator[memoryview], finish: Callable[[], None], *, dry_run: bool
) -> None:
    """Write the pieces of the log, then call `finish`; with `dry_run` only read them.

    Raises CommandFailed that says what to do with the new store.
    """
    if dry_run:
        for _ in pieces:
            pass
        return
    try:
        _write_log(directory, settings, pieces)
        finish()
    except StoreError as error:
        raise CommandFailed(f"{error}; remove {directory} before you try again") from None


def _write_log(directory: Path, settings: StoreConfig, pieces: Iterator[memoryview]) -> None:
    """Write the log as a slave does: queues and index are built from it."""
    notices: Notices = SimpleQueue()
    store = open_store(directory, settings, notices)
    try:
        replica = store.replica()
        batch: list[memoryview] = []
        size = 0
        for piece in pieces:
            batch.append(piece)
            size += len(piece)
            if size >= _APPEND_BYTES:
                replica.append(replica.received_offset, batch)
                batch, size = [], 0
                if replica.end_offset - replica.flushed_offset >= _FLUSH_BYTES:
                    store.flush()
                while not notices.empty():
                    notices.get()()
        if batch:
            replica.append(replica.received_offset, batch)
        replica.lead()
        store.flush()
    finally:
        store.shutdown()


def report(count: int, topics: Mapping[str, int], directory: Path, *, dry_run: bool, as_json: bool) -> None:
    """Say what was imported: `count` messages of `topics`, each with a number of messages or queues."""
    verb = "could be imported" if dry_run else f"imported to {directory}"
    document = {"messages": count, "topics": dict(topics), "store": str(directory), "dryRun": dry_run}
    print_found(document, [f"{count} messages of {len(topics)} topics {verb}"], as_json=as_json)
