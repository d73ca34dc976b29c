"""`sprocket store import` of a directory of RocketMQ's DLedger mode: its messages and tables go into a new store."""

from collections.abc import Iterator
from pathlib import Path

from sprocket_cli.client_session import WrongUsage
from sprocket_cli.store.commands import progress_bar, shape_of, store_errors
from sprocket_cli.store.new_store import check_new, fill, report
from sprocket_cli.store.written_store import settings_of
from store.disk.disk import RealDisk
from store.dledger.conversion import LogWriter, records_of
from store.dledger.entry_log import EntryLog, Progress
from store.dledger.folders import DLEDGER_PREFIX, dledger_folders
from store.inspection.file_sequence import FileSequence
from store.inspection.file_view import is_locked


def import_dledger(
    source: Path, directory: Path, config: Path | None, segment_bytes: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Convert the files of one broker.  Raises WrongUsage, or CommandFailed that says what to do with the new store."""
    with store_errors():
        folder = _folder_in(source)
        root = folder.parent
        if is_locked(root / "lock"):
            raise WrongUsage(f"{root}: a broker uses this store: stop it first")
        check_new(root, directory)
        entries = EntryLog(folder)
        settings = settings_of(directory, shape_of(config, segment_bytes or entries.file_bytes))
        writer = LogWriter(settings.mapped_file_size_commit_log)
        with progress_bar("reading", entries.size_bytes, quiet=as_json) as progress:
            pieces = _pieces(root, entries, writer, progress)
            fill(directory, settings, pieces, lambda: _copy_tables(root, directory), dry_run=dry_run)
    report(writer.records.total(), writer.records, directory, dry_run=dry_run, as_json=as_json)


def _folder_in(source: Path) -> Path:
    """Return the folder with the entries: `source` itself, or the only one in it."""
    if source.name.startswith(DLEDGER_PREFIX) and (source / "data").is_dir():
        return source.absolute()
    folders = dledger_folders(RealDisk(), source.absolute())
    if not folders:
        raise WrongUsage(f"{source}: no folder {DLEDGER_PREFIX}... with files of RocketMQ's DLedger mode is in it")
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise WrongUsage(f"{source}: it holds {names}: name the folder of one broker")
    return folders[0]


def _pieces(root: Path, entries: EntryLog, writer: LogWriter, progress: Progress) -> Iterator[memoryview]:
    """Yield the new log: first the records from before DLedger mode was turned on, then those of the entries."""
    log = FileSequence(root / "commitlog")
    for offset, record in records_of(log):
        yield from writer.add(record, f"{log.path_at(offset)} at {offset}")
    for entry in entries.entries(progress):
        if entry.body:
            yield from writer.add(entry.body, f"{entries.folder}: entry {entry.number} at {entry.position}")


def _copy_tables(root: Path, directory: Path) -> None:
    """Copy topics, groups and offsets: they count in queue offsets, which have not changed.

    The timer's checkpoint names a wheel that is not there, so the broker rebuilds it from the topic of timed messages.
    """
    disk = RealDisk()
    for name, size in disk.entries(root / "config"):
        if size is None or name.endswith(".tmp"):
            continue
        content = disk.read(root / "config" / name)
        if content is not None:
            disk.write_small(directory / "config" / name, content)
