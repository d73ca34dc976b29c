"""`sprocket store import` of RocketMQ's tiered storage in a directory: its messages go into a new store."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket.common.errors import StoreError
from sprocket_cli.client_session import CommandFailed
from sprocket_cli.store.commands import progress_bar, shape_of, store_errors
from sprocket_cli.store.import_dledger import check_new, report, write_log
from sprocket_cli.store.written_store import add_topics, settings_of

if TYPE_CHECKING:
    from store.dledger.conversion import LogWriter
    from store.dledger.entry_log import Progress
    from store.tier.flat_files import FlatFiles


def import_tier(
    folder: Path, directory: Path, config: Path | None, segment_bytes: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Convert the files of one broker.  Raises WrongUsage, or CommandFailed that says what to do with the new store."""
    from store.dledger.conversion import LogWriter
    from store.tier.flat_files import FlatFiles

    with store_errors():
        check_new(folder, directory)
        files = FlatFiles(folder)
        settings = settings_of(directory, shape_of(config, segment_bytes))
        writer = LogWriter(settings.mapped_file_size_commit_log)
        with progress_bar("reading", files.size_bytes, quiet=as_json) as progress:
            pieces = _pieces(files, writer, progress)
            if dry_run:
                for _ in pieces:
                    pass
            else:
                try:
                    write_log(directory, settings, pieces)
                    queues: dict[str, int] = {}
                    for queue in files.queues:
                        queues[queue.topic] = max(queues.get(queue.topic, 0), queue.queue_id + 1)
                    add_topics(directory, queues)
                except StoreError as error:
                    raise CommandFailed(f"{error}; remove {directory} before you try again") from None
    for (topic, queue_id), count in sorted(files.lost.items()):
        click.echo(f"missing: {count} messages in {topic} queue {queue_id}: they are not in the files", err=True)
    report(writer, directory, dry_run=dry_run, as_json=as_json)


def _pieces(files: "FlatFiles", writer: "LogWriter", progress: "Progress") -> Iterator[memoryview]:
    """Yield the new log."""
    for found in files.records(progress):
        yield from writer.add(found.content, found.where)
