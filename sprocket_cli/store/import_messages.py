"""`sprocket store import`: appends exported messages to a stopped or a new store."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import click

from sprocket.common.errors import RequestError, StoreBusy, StoreError
from sprocket.remoting.message.record import record_size
from sprocket_cli.client_session import HELP, CommandFailed, json_option
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_of, shape_options, store_errors
from sprocket_cli.store.import_dledger import import_dledger
from sprocket_cli.store.import_tier import import_tier
from sprocket_cli.store.new_store import report
from sprocket_cli.store.parquet import read_rows
from sprocket_cli.store.written_store import Notices, add_topics, open_store, settings_of
from store.config.store_config import StoreConfig
from store.inspection.record_row import Row, decode_row, message_of, row_of_values
from store.message_store import MessageStore
from store.record.checksum import SEAL_BYTES
from store.record.record import PendingMessage, TagsCodes
from store.tier.flat_files import broker_folder

# Tries of about 1 s each while the flush lags behind.
_TRIES = 120
_BATCH_ROWS = 512
_BATCH_BYTES = 4 * 1024 * 1024


@click.command("import", context_settings=HELP)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--to", "directory", type=DIRECTORY, required=True, help="Store directory; created if missing.")
@click.option("--dry-run", is_flag=True, help="Check every row and write nothing.")
@shape_options
@json_option
def import_(
    file: Path, directory: Path, dry_run: bool, config: Path | None, segment_bytes: int | None, as_json: bool
) -> None:
    """Append the messages in FILE (JSON lines or Parquet, as `sprocket store export` writes) to a store.

    Messages keep topic, queue, key, tag, properties, body, born time and born host; they get new offsets and a new
    store time. Missing topics and queues are added to config/topics.json.

    Every row is checked before the first one is written. If a row is malformed, its line is reported and nothing is
    imported.  Stop the broker first.

    FILE may also be the directory of a broker of RocketMQ in DLedger mode: storePathRootDir, or the folder dledger-...
    in it. Its messages keep queues and queue offsets, and its tables (topics, groups, offsets) are copied. The store
    must be new.

    Or the directory of RocketMQ's tiered storage (tieredStoreFilePath), or in it the folder of one broker. Its messages
    keep queues, queue offsets and times; topics get as many queues as have messages. The store must be new.
    """
    if file.is_dir():
        with store_errors():
            folder = broker_folder(file.absolute())
        if folder is not None:
            import_tier(folder, directory, config, segment_bytes, dry_run=dry_run, as_json=as_json)
            return
        import_dledger(file, directory, config, segment_bytes, dry_run=dry_run, as_json=as_json)
        return
    shape = shape_of(config, segment_bytes)
    tags_codes = TagsCodes(shape.delay_levels)
    queues: dict[str, int] = {}
    count = 0
    with store_errors(), progress_bar("reading", file.stat().st_size, quiet=as_json):
        settings = settings_of(directory, shape)
        for number, row in _rows(file):
            _check_size(file, number, _message(file, number, row, tags_codes), settings)
            queues[row.topic] = max(queues.get(row.topic, 0), row.queue_id + 1)
            count += 1
        if not dry_run:
            _append(file, directory, settings, tags_codes, queues)
    report(count, queues, directory, dry_run=dry_run, as_json=as_json)


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    """Yield each row with its number, counted from 1.  Raises CommandFailed for a malformed row."""
    is_parquet = file.suffix == ".parquet"
    if not is_parquet:
        with file.open("rb") as probe:
            is_parquet = probe.read(4) == b"PAR1"
    number = 0
    try:
        if is_parquet:
            for number, values in enumerate(read_rows(file), 1):
                yield number, row_of_values(values)
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, decode_row(line)
    except StoreError as error:
        raise CommandFailed(f"{file}:{number}: {error}; nothing was imported") from None


def _message(file: Path, number: int, row: Row, tags_codes: TagsCodes) -> PendingMessage:
    try:
        return message_of(row, tags_codes)
    except StoreError as error:
        raise CommandFailed(f"{file}:{number}: {error}; nothing was imported") from None


def _check_size(file: Path, number: int, message: PendingMessage, settings: StoreConfig) -> None:
    """Raise CommandFailed for a message that the store would refuse."""
    size = record_size(
        message.sys_flag, len(message.body), len(message.topic.encode()), len(message.properties) + SEAL_BYTES
    )
    if len(message.body) > settings.max_message_size:
        why = f"the body has {len(message.body)} bytes, maxMessageSize is {settings.max_message_size}"
    elif size > settings.max_record_bytes:
        why = f"the record would have {size} bytes, allowed are {settings.max_record_bytes}"
    else:
        return
    raise CommandFailed(f"{file}:{number}: {why}; nothing was imported")


def _append(file: Path, directory: Path, settings: StoreConfig, tags_codes: TagsCodes, queues: dict[str, int]) -> None:
    notices: Notices = SimpleQueue()
    store = open_store(directory, settings, notices)
    written = 0
    try:
        # Add topics first: a broker can then read the messages of an import that failed half way.
        add_topics(directory, queues)
        batch: list[PendingMessage] = []
        size = 0
        for number, row in _rows(file):
            batch.append(_message(file, number, row, tags_codes))
            size += len(row.body)
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                _put(store, batch, notices)
                batch, size, written = [], 0, number
        if batch:
            _put(store, batch, notices)
    except RequestError as error:
        raise CommandFailed(f"{file}: {error.remark}; {_imported(written)}") from None
    except StoreError as error:
        raise StoreError(f"{error}; {_imported(written)}") from None
    finally:
        store.shutdown()


def _imported(written: int) -> str:
    return f"rows up to {written} are imported, later ones are not" if written else "nothing was imported"


def _put(store: MessageStore, batch: list[PendingMessage], notices: Notices) -> None:
    """Append a batch and run the notices of the store's threads; wait while the flush lags behind."""
    for _ in range(_TRIES):
        try:
            store.append(batch)
            break
        except StoreBusy:
            with suppress(Empty):
                notices.get(timeout=1.0)()
    else:
        store.append(batch)
    while not notices.empty():
        notices.get()()
