"""Stores that Apache RocketMQ's own DefaultMessageStore writes and reads, in lines of text."""

import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from store.message_store import GetStatus, MessageStore
from tests.compat import maven
from tests.store.reading import records_of

TOOL = Path(__file__).resolve().parents[1] / "java" / "store" / "StoreTool.java"
_LIMIT_S = 120


@dataclass(frozen=True)
class Dump:
    """What a store holds: messages, bounds of queues, and answers to searches by time."""

    messages: list[str]
    queues: list[str]
    times: list[str]
    end: int


def parse(text: str) -> Dump:
    """The lines that StoreTool prints."""
    lines = [line for line in text.splitlines() if line.startswith(("MESSAGE\t", "QUEUE\t", "TIME\t", "END "))]
    kinds = {kind: [line for line in lines if line.startswith(kind)] for kind in ("MESSAGE", "QUEUE", "TIME", "END")}
    return Dump(kinds["MESSAGE"], kinds["QUEUE"], kinds["TIME"], int(kinds["END"][0].split()[1]))


def run_tool(
    action: str, root: Path, segment_bytes: int, queue_file_bytes: int, *arguments: str, crc: bool = False
) -> Dump:
    """Let Apache RocketMQ write to or read a store; raises with its output if it refuses.

    With `crc` its records end with a CRC of their own, and it takes none without.
    """
    command = [
        *maven.short_java(), f"-Dsprocket.crc={str(crc).lower()}", f"-Duser.home={root.parent}",
        "-cp", maven.compiled(TOOL, maven.apache_classpath()), TOOL.stem,
        action, str(root), str(segment_bytes), str(queue_file_bytes), *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode != 0 or "END " not in done.stdout:
        raise RuntimeError(f"StoreTool {action}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return parse(done.stdout)


def dump(store: MessageStore) -> Dump:
    """The same lines from our store."""
    messages, queues, times = [], [], []
    for topic, queue_id in sorted(store.queues()):
        queues.append(
            _line("QUEUE", topic, queue_id, store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
        )
        messages += list(_messages(store, topic, queue_id))
    return Dump(messages, queues, times, store.wrote_offset)


def _messages(store: MessageStore, topic: str, queue_id: int) -> Iterator[str]:
    offset = store.min_offset(topic, queue_id)
    while (result := store.get(topic, queue_id, offset, 32, 1 << 20)).status is GetStatus.FOUND:
        for record in records_of(result.slices):
            entry = store.entry(topic, queue_id, record.queue_offset)
            assert entry is not None
            yield _line(
                "MESSAGE", record.topic, record.queue_id, record.queue_offset, record.physical_offset,
                record.size_bytes, record.sys_flag, record.flag, record.born_timestamp, _encode(record.born_host),
                record.store_timestamp, _encode(record.store_host), record.reconsume_times,
                record.prepared_transaction_offset, record.body_crc, _encode(record.body),
                _encode(_sorted(bytes(record.properties))), entry[2],
            )  # fmt: skip
        offset = result.next_offset


def _sorted(properties: bytes) -> bytes:
    pairs = sorted(pair for pair in properties.split(b"\x02") if pair)
    return b"".join(pair + b"\x02" for pair in pairs)


def _encode(content: bytes | memoryview) -> str:
    return "b:" + base64.b64encode(content).decode()


def _line(*fields: object) -> str:
    return "\t".join(str(field) for field in fields)
