"""`mqadmin` about files of compacted topics.  Source: RocketMQ 5.3.3, `DumpCompactionLogCommand`."""

from pathlib import Path
from typing import Final

import click

from sprocket.client.admin.stored_message import records, stored_messages
from sprocket.common.errors import ProtocolError
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.message.record import MAGIC_BLANK
from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage
from sprocket_cli.mqadmin.message.text import record_line

_HEAD_BYTES: Final = 8


@click.command("dumpCompactionLog", context_settings=HELP)
@click.option("-f", "--file", "path", type=click.Path(path_type=Path), help="to dump file name")
@click.option("-n", "--namesrvAddr", "_servers", expose_value=False, help="Accepted and ignored: no server is asked.")
def dump_compaction_log(path: Path | None) -> None:
    """Parse compaction log to message.

    The file is one of `<store>/compacted/<topic>/<queueId>/*.log`, or of RocketMQ's compactionLog.  Without bodies.
    """
    if path is None:
        click.echo("miss dump log file name")
        return
    if not path.exists():
        raise WrongUsage(f"file {path} not exist.")
    if path.is_dir():
        raise WrongUsage(f"file {path} is a directory.")
    header = PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)
    try:
        with path.open("rb") as file:
            while True:
                head = file.read(_HEAD_BYTES)
                size = int.from_bytes(head[:4], "big", signed=True)
                if size <= len(head) or int.from_bytes(head[4:], "big", signed=True) == MAGIC_BLANK:
                    return  # the rest of the file is empty
                content = head + file.read(size - len(head))
                if len(content) < size:
                    raise CommandFailed(f"{path}: ends within a record")
                for record, queue in records(content, "", ""):
                    for stored in stored_messages(record, queue, header):
                        click.echo(record_line(stored))
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None
    except ProtocolError as error:
        raise CommandFailed(f"{path}: {error}") from None
