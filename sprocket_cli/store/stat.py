"""`sprocket store stat`: figures of a store by topic."""

from collections.abc import Iterator
from pathlib import Path

import click

from sprocket_cli.client_session import HELP, json_option, print_found
from sprocket_cli.columns import fitted, seconds_text
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_options, size_text, store_errors
from sprocket_cli.store.selection import Walk
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
    with store_errors():
        walk = Walk(directory, config, segment_bytes)
        figures = StoreFigures(walk.log, walk.shape.delay_levels)
        with progress_bar("counting", walk.total_bytes, quiet=as_json) as progress:
            figures.run(None, progress)
    lines = _topic_lines(directory, figures, top) if topic is None else _queue_lines(figures, topic)
    print_found(_document(directory, figures), lines, as_json=as_json)


def _topic_lines(directory: Path, figures: StoreFigures, top: int) -> Iterator[str]:
    log = figures.log
    size = figures.end_offset - log.first_offset
    yield (
        f"{directory}: {figures.records} records in {size_text(size)}, {len(log.parts)} segments of "
        f"{size_text(log.file_bytes)}, offsets {log.first_offset} to {figures.end_offset}"
    )
    if figures.hidden:
        yield f"{figures.hidden} records belong to uncommitted transactions and are in no queue"
    if figures.damaged_bytes:
        yield f"{figures.damaged_bytes} bytes are damaged: see sprocket store check {directory}"
    by_size = sorted(figures.topics.items(), key=lambda item: item[1].total.size_bytes, reverse=True)
    rows = []
    for name, topic in by_size[:top]:
        total = topic.total
        rows.append(
            (name, len(topic.queues), total.messages, size_text(total.size_bytes), seconds_text(total.first_time),
             seconds_text(total.last_time), _number(topic.keys), _number(topic.tags))
        )  # fmt: skip
    yield from fitted(("topic", "queues", "messages", "size", "oldest", "newest", "keys", "tags"), rows)
    if len(by_size) > top:
        yield f"and {len(by_size) - top} smaller topics"


def _queue_lines(figures: StoreFigures, name: str) -> list[str]:
    topic = figures.topics.get(name)
    rows = []
    for queue_id, queue in sorted(topic.queues.items()) if topic is not None else ():
        times = (seconds_text(queue.first_time), seconds_text(queue.last_time))
        rows.append((queue_id, queue.messages, size_text(queue.size_bytes), *times))
    return fitted(("queue", "messages", "size", "oldest", "newest"), rows)


def _number(cardinality: Cardinality) -> str:
    return f"~{cardinality.count}" if cardinality.is_estimated else str(cardinality.count)


def _document(directory: Path, figures: StoreFigures) -> dict[str, object]:
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
