"""Options that choose messages for `sprocket store dump` and `export`, and the walk over the log."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from sprocket.common.errors import StoreError
from sprocket_cli.client_session import WrongUsage, option_set
from sprocket_cli.store.commands import shape_of
from store.inspection.file_sequence import FileSequence
from store.inspection.log_inspection import Gap
from store.inspection.record_selection import Selection, place_of, select
from store.record.record import Record


class Time(click.ParamType[int]):
    """Milliseconds since 1970, or an ISO 8601 date and time, local unless it has a zone."""

    name = "time"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> int:
        text = str(value)
        if re.fullmatch(r"\d{1,18}", text):
            return int(text)
        try:
            return round(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(f"{text!r}: allowed are milliseconds, or a time like 2026-01-31T23:59:59", parameter, context)


# Filters; a message must pass all of them.
selection_options = option_set(
    click.option("--from-offset", type=click.IntRange(0), help="At this physical offset or later."),
    click.option("--to-offset", type=click.IntRange(0), help="Before this physical offset."),
    click.option("--topic", help="Only this topic."),
    click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue id."),
    click.option("--queue-offset", type=click.IntRange(0), help="Only this queue offset."),
    click.option("--key", help="With this key or unique id."),
    click.option("--tag", help="With this tag."),
    click.option("--from-time", type=Time(), help="Stored at this time or later."),
    click.option("--to-time", type=Time(), help="Stored before this time: ms, or 2026-01-31T23:59:59."),
    click.option("--max", "limit", type=click.IntRange(1), help="Maximum number of messages."),
)


class Walk:
    """Walk over the chosen messages of one store; `damaged_bytes` counts skipped damage."""

    def __init__(self, directory: Path, config: Path | None, segment_bytes: int | None) -> None:
        self.directory = directory
        self.shape = shape_of(config, segment_bytes)
        log_directory = self.shape.commit_log or directory / "commitlog"
        if not log_directory.is_dir():
            raise StoreError(f"{directory}: is no store directory: there is no commitlog/ in it")
        self.log = FileSequence(log_directory, self.shape.segment_bytes)
        self.damaged_bytes = 0

    @property
    def total_bytes(self) -> int:
        return len(self.log.parts) * self.log.file_bytes

    def records(
        self, selection: Selection, limit: int | None, progress: Callable[[int], None] = lambda size_bytes: None
    ) -> Iterator[Record]:
        """Yield the chosen records, at most `limit`."""
        count = 0
        for found in select(self.log, self._narrowed(selection), None, progress):
            if isinstance(found, Gap):
                self.damaged_bytes += found.end - found.start
                continue
            yield found
            count += 1
            if limit is not None and count >= limit:
                return

    def _narrowed(self, selection: Selection) -> Selection:
        """Return `selection` with the place from the ConsumeQueue if it names topic, queue and queue offset."""
        from dataclasses import replace

        if selection.topic is None or selection.queue_id is None or selection.queue_offset is None:
            return selection
        queue = FileSequence(self.directory / "consumequeue" / selection.topic / str(selection.queue_id))
        place = place_of(queue, selection.queue_offset) if queue.file_bytes else None
        if place is None or selection.from_offset is not None or selection.to_offset is not None:
            return selection
        return replace(selection, from_offset=place[0], to_offset=place[0] + place[1])

    def warn(self) -> None:
        """Warn on stderr if damage was skipped."""
        if self.damaged_bytes:
            click.echo(
                f"Warning: {self.damaged_bytes} bytes of the log are damaged and were skipped;"
                f" see: sprocket store check {self.directory}",
                err=True,
            )


def selection_of(options: dict[str, Any], *, only_visible: bool = False) -> Selection:
    """Return the options as a `Selection`.  Raises WrongUsage for an empty range."""
    begin, end = options["from_time"], options["to_time"]
    if begin is not None and end is not None and begin >= end:
        raise WrongUsage("--from-time must be before --to-time")
    return Selection(
        options["from_offset"], options["to_offset"], options["topic"], options["queue_id"], options["queue_offset"],
        options["key"], options["tag"], options["from_time"], options["to_time"], only_visible,
    )  # fmt: skip
