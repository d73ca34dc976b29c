"""`sprocket store stat`: figures of a store by topic."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import HELP, json_option, print_json
from sprocket_cli.columns import fitted, seconds_text
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_of, shape_options, size_text, store_errors

if TYPE_CHECKING:
    from store.inspection.store_figures import Cardinality, StoreFigures


@click.command(context_settings=HELP)
@click.argument("directory", type=DIRECTORY)
@click.option("--topic", help="Show the queues of this topic only.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Number of topics, largest first.")
@shape_options
@json_option
def stat(
    directory: Path, topic: str | None, top: int, config: Path | None, segment_bytes: int | None, as_json: bool
) -> None:
    """Count topics, queues, messages, bytes, ages, keys and tags of the store in DIRECTORY.

    An estimated number begins with "~".
    """
    from sprocket.common.errors import StoreError
    from store.inspection.file_sequence import FileSequence
    from store.inspection.store_figures import StoreFigures

    shape = shape_of(config, segment_bytes)
    with store_errors():
        log_directory = shape.commit_log or directory / "commitlog"
        if not log_directory.is_dir():
            raise StoreError(f"{directory}: is no store directory: there is no commitlog/ in it")
        log = FileSequence(log_directory, shape.segment_bytes)
        figures = StoreFigures(log, shape.delay_levels)
        with progress_bar("counting", len(log.parts) * log.file_bytes, quiet=as_json) as progress:
            figures.run(None, progress)
    if as_json:
        print_json(_document(directory, figures))
    elif topic is not None:
        _print_queues(figures, topic)
    else:
        _print_topics(directory, figures, top)


def _print_topics(directory: Path, figures: "StoreFigures", top: int) -> None:
    log = figures.log
    size = figures.end_offset - log.first_offset
    click.echo(
        f"{directory}: {figures.records} records in {size_text(size)}, {len(log.parts)} segments of "
        f"{size_text(log.file_bytes)}, offsets {log.first_offset} to {figures.end_offset}"
    )
    if figures.hidden:
        click.echo(f"{figures.hidden} records belong to uncommitted transactions and are in no queue")
    if figures.damaged_bytes:
        click.echo(f"{figures.damaged_bytes} bytes are damaged: see sprocket store check {directory}")
    by_size = sorted(figures.topics.items(), key=lambda item: item[1].total.size_bytes, reverse=True)
    rows = []
    for name, topic in by_size[:top]:
        total = topic.total
        rows.append(
            (name, len(topic.queues), total.messages, size_text(total.size_bytes), seconds_text(total.first_time),
             seconds_text(total.last_time), _number(topic.keys), _number(topic.tags))
        )  # fmt: skip
    for line in fitted(("topic", "queues", "messages", "size", "oldest", "newest", "keys", "tags"), rows):
        click.echo(line)
    if len(by_size) > top:
        click.echo(f"and {len(by_size) - top} smaller topics")


def _print_queues(figures: "StoreFigures", name: str) -> None:
    topic = figures.topics.get(name)
    rows = []
    for queue_id, queue in sorted(topic.queues.items()) if topic is not None else ():
        times = (seconds_text(queue.first_time), seconds_text(queue.last_time))
        rows.append((queue_id, queue.messages, size_text(queue.size_bytes), *times))
    for line in fitted(("queue", "messages", "size", "oldest", "newest"), rows):
        click.echo(line)


def _number(cardinality: "Cardinality") -> str:
    return f"~{cardinality.count}" if cardinality.is_estimated else str(cardinality.count)


def _document(directory: Path, figures: "StoreFigures") -> dict[str, object]:
    topics: dict[str, object] = {}
    for name, topic in sorted(figures.topics.items()):
        total = topic.total
        topics[name] = {
            "messages": total.messages, "bytes": total.size_bytes, "oldest": total.first_time,
            "newest": total.last_time, "keys": topic.keys.count, "keysEstimated": topic.keys.is_estimated,
            "tags": topic.tags.count, "tagsEstimated": topic.tags.is_estimated,
            "queues": {
                str(number): {"messages": queue.messages, "bytes": queue.size_bytes, "oldest": queue.first_time,
                              "newest": queue.last_time}
                for number, queue in sorted(topic.queues.items())
            },
        }  # fmt: skip
    return {
        "store": str(directory),
        "records": figures.records,
        "uncommitted": figures.hidden,
        "damagedBytes": figures.damaged_bytes,
        "segments": len(figures.log.parts),
        "segmentBytes": figures.log.file_bytes,
        "minOffset": figures.log.first_offset,
        "maxOffset": figures.end_offset,
        "topics": topics,
    }
