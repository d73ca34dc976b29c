"""`sprocket store import` of RocketMQ's tiered storage in a directory: its messages go into a new store."""

from collections.abc import Iterator
from pathlib import Path

import click

from sprocket_cli.store.commands import progress_bar, shape_of, store_errors
from sprocket_cli.store.new_store import check_new, fill, report
from sprocket_cli.store.written_store import add_topics, settings_of
from store.dledger.conversion import LogWriter
from store.dledger.entry_log import Progress
from store.tier.flat_files import FlatFiles


def import_tier(
    folder: Path, directory: Path, config: Path | None, segment_bytes: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Convert the files of one broker.  Raises WrongUsage, or CommandFailed that says what to do with the new store."""
    with store_errors():
        check_new(folder, directory)
        files = FlatFiles(folder)
        settings = settings_of(directory, shape_of(config, segment_bytes))
        writer = LogWriter(settings.mapped_file_size_commit_log)
        with progress_bar("reading", files.size_bytes, quiet=as_json) as progress:
            pieces = _pieces(files, writer, progress)
            fill(directory, settings, pieces, lambda: add_topics(directory, _queues(files)), dry_run=dry_run)
    for (topic, queue_id), count in sorted(files.lost.items()):
        click.echo(f"missing: {count} messages in {topic} queue {queue_id}: they are not in the files", err=True)
    report(writer.records.total(), writer.records, directory, dry_run=dry_run, as_json=as_json)


def _queues(files: FlatFiles) -> dict[str, int]:
    """Return how many queues each topic has."""
    found: dict[str, int] = {}
    for queue in files.queues:
        found[queue.topic] = max(found.get(queue.topic, 0), queue.queue_id + 1)
    return found


def _pieces(files: FlatFiles, writer: LogWriter, progress: Progress) -> Iterator[memoryview]:
    """Yield the new log."""
    for found in files.records(progress):
        yield from writer.add(found.content, found.where)
