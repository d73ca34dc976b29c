"""Check of a store's small files: checkpoint, abort, lock, and the broker's JSON under ``config/``."""

import struct
from pathlib import Path
from typing import Final

from sprocket.common.errors import ProtocolError, StoreError
from sprocket.remoting.codec.fastjson import loads
from store.disk.epoch_checkpoint import decode_epochs
from store.disk.sealed_file import unseal
from store.dispatch.deleted_topics import decode as topics_content
from store.flush.checkpoint import Checkpoint
from store.flush.queue_list import decode as list_content
from store.inspection.file_view import list_directory, read_small
from store.inspection.finding import Findings, Severity
from store.layout import CHECKPOINT_BYTES, CHECKPOINT_DTYPE
from store.recovery.flushed_mark import FLUSHED_MARK_KIND, decode_mark

REPAIR_PREFIX: Final = "repair-"
# A checkpoint may be this much ahead of the clock: several machines' clocks write into one log.
_CLOCK_SLACK_MS: Final = 3_000
_FIELDS: Final = struct.Struct(">" + "q" * (CHECKPOINT_DTYPE.itemsize // 8))
_OFFSET: Final = struct.Struct(">q")
# Names at the top of a store, and what they are.
KNOWN_NAMES: Final = {
    "abort": "exists while a broker runs",
    "lock": "held by a running broker",
    "checkpoint": "up to where log and queues were on the disk",
    "commitlog": "the log",
    "consumequeue": "where each queue's messages lie in the log",
    "consumequeue_ext": "extended tags of ConsumeQueues",
    "consumequeue_r": "ConsumeQueues in RocksDB",
    "batchconsumequeue": "ConsumeQueues whose units hold many messages",
    "index": "messages by key",
    "config": "topics, groups and offsets",
    "timerwheel": "slots of timed messages",
    "timerlog": "timed messages by slot",
    "epochFileCheckpoint": "epochs of masters",
    "epochFileCheckpoint.bak": "epochs of masters",
    "brokerIdentity": "the broker's id at its controller",
    "compacted": "compacted queues: the last messages of their keys",
    "compaction": "compacted queues of RocketMQ, which a broker of this project does not read",
    "metadata": "the broker's metadata",
    "leases": "readers that hold segments, and until when",
    "queuelist": "how far each queue is on the disk",
    "flushed": "how far the log was on the disk at its last sync",
    "confirm": "offset up to which consumers may read, while a broker runs",
    "tiertables": "compacted queues of the archive that a broker with readOnlyFrom serves; can be deleted",
    "tierfooters": "where messages lie in the objects of the archive; can be deleted",
    "truncate": "intent to cut the log; the next start finishes the cut",
    "cut": "what a start cut off the log",
    "restoredpartly": "what the archive lacked from which the store was restored: a slave must not start from it",
    "deletedtopics": "topics whose records in the log do not count",
    "lost+found": "made by the file system",
}


def check_top_level(root: Path, findings: Findings) -> None:
    """Add a note for each unknown name at the top of the store."""
    for name, is_directory, size_bytes in list_directory(root):
        if name.endswith((".tmp", ".bak")) or name in KNOWN_NAMES or name.startswith((REPAIR_PREFIX, "sprocket")):
            continue
        what = "folder" if is_directory else f"file of {size_bytes} bytes"
        findings.add("stray", Severity.NOTE, name, f"{what} that is no part of a store; left alone")


def read_checkpoint(root: Path, findings: Findings) -> Checkpoint | None:
    """Return the checkpoint; None, with a finding, if it is missing or unreadable."""
    try:
        content = read_small(root / "checkpoint")
    except StoreError as error:
        findings.add("checkpoint", Severity.WRONG, "checkpoint", str(error))
        return None
    if content is None:
        findings.add("checkpoint", Severity.NOTE, "checkpoint", "is not there; the next start checks the whole log")
        return None
    if len(content) < CHECKPOINT_DTYPE.itemsize:
        text = f"has {len(content)} bytes of {CHECKPOINT_BYTES}: it names no time and no offset"
        findings.add("checkpoint", Severity.WRONG, "checkpoint", text, "write one that promises nothing", 0)
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack_from(content))


def check_checkpoint(checkpoint: Checkpoint, findings: Findings, log_end: int, last_store_timestamp: int) -> bool:
    """Compare the checkpoint with the log.  Return False if it promises more than the log holds."""
    wrong = []
    newest = last_store_timestamp + _CLOCK_SLACK_MS
    for at, name in enumerate(("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")):
        value = getattr(checkpoint, name)
        if not 0 <= value <= newest:
            wrong.append((8 * at, f"{name} is {value}, the log's newest record has {last_store_timestamp}"))
    if not 0 <= checkpoint.confirm_phy_offset <= log_end:
        wrong.append((32, f"confirm_phy_offset is {checkpoint.confirm_phy_offset}, the log ends at {log_end}"))
    for position, text in wrong:
        findings.add("checkpoint", Severity.WRONG, "checkpoint", text, "write one that promises less", position)
    return not wrong


def deleted_topics(root: Path, findings: Findings) -> dict[str, int]:
    """Return topic -> physical offset before which its records do not count, from ``deletedtopics``."""
    found = _unsealed(root, "deletedtopics", b"DTOP", findings, "deleted topics may come back when queues are rebuilt")
    decoded = topics_content(found) if found is not None else {}
    return decoded if isinstance(decoded, dict) else {}


def check_queue_list(root: Path, findings: Findings, log_end: int) -> bool:
    """Return whether ``queuelist`` can stay: it is whole and promises no more than the log holds."""
    found = _unsealed(root, "queuelist", b"QLST", findings, "the next start checks the whole log")
    if found is None:
        return not (root / "queuelist").exists()
    listed = list_content(found)
    fault = listed if isinstance(listed, str) else ""
    if not isinstance(listed, str) and listed.log_offset > log_end:
        fault = f"says that the log is on the disk up to {listed.log_offset}; it ends at {log_end}"
    return _holds("queue-list", "queuelist", fault, findings)


def builds_all_queues(root: Path) -> bool:
    """Return whether a broker's next start builds all queues from the log: ``queuelist`` says so after a restore."""
    content = _unsealed(root, "queuelist", b"QLST", Findings(), "")
    listed = None if content is None else list_content(content)
    return not isinstance(listed, str | None) and listed.must_rebuild


def check_flushed_mark(root: Path, findings: Findings, log_end: int) -> bool:
    """Return whether ``flushed`` can stay: it is whole and promises no more than the log holds."""
    content = _unsealed(root, "flushed", FLUSHED_MARK_KIND, findings, "it says nothing")
    if content is None:
        return not (root / "flushed").exists()
    offset = decode_mark(content)
    fault = offset if isinstance(offset, str) else ""
    if isinstance(offset, int) and offset > log_end:
        fault = f"says that the log was on the disk up to {offset}; it ends at {log_end}"
    return _holds("flushed-mark", "flushed", fault, findings)


def _holds(kind: str, name: str, fault: str, findings: Findings) -> bool:
    """Return whether one of Sprocket's own files has no fault; add a finding if it has."""
    if fault:
        findings.add(kind, Severity.WRONG, name, fault, "move it aside; the broker writes a new one")
    return not fault


def check_epochs(root: Path, findings: Findings, log_end: int) -> bool:
    """Return whether ``epochFileCheckpoint`` can stay: it or its backup is whole.

    Epochs that begin after the log's end do no harm: the next start takes them out.
    """
    name = "epochFileCheckpoint"
    backup = f"{name}.bak"
    found = {path: _epochs(root / path) for path in (name, backup) if (root / path).exists()}
    whole = [epochs for epochs in found.values() if not isinstance(epochs, str)]
    for path, epochs in found.items():
        if isinstance(epochs, str) and whole:
            other = backup if path == name else name
            findings.add("epochs", Severity.NOTE, path, f"{epochs}; {other} is whole, and the next start uses it")
        elif isinstance(epochs, str):
            text = f"{epochs}: a broker in controller mode does not start"
            advice = "move it aside; the broker finds by checksums where its log diverges from its master's"
            findings.add("epochs", Severity.WRONG, path, text, advice)
    later = sum(start >= log_end for _, start in whole[0]) if whole else 0
    if later:
        findings.add("epochs", Severity.NOTE, name, f"{later} epochs begin at the log's end {log_end} or after it")
    return bool(whole) or not found


def _epochs(path: Path) -> list[tuple[int, int]] | str:
    try:
        return decode_epochs(read_small(path) or b"")
    except StoreError as error:
        return str(error)


def intended_end(root: Path, findings: Findings) -> int | None:
    """Return the offset in ``truncate`` at which an unfinished cut ends the log; None without one."""
    content = _unsealed(root, "truncate", b"TRNC", findings, "the cut was not begun yet, and is not made")
    if content is None or len(content) != _OFFSET.size:
        return None
    end: int = _OFFSET.unpack(content)[0]
    text = f"a cut of the log to {end} was begun; the next start finishes it, and what follows does not count"
    findings.add("truncate", Severity.NOTE, "truncate", text)
    return end


def _unsealed(root: Path, name: str, kind: bytes, findings: Findings, effect: str) -> bytes | None:
    """Return the content of one of Sprocket's own files; None, with a finding if it exists but is not valid."""
    try:
        sealed = read_small(root / name)
        content = None if sealed is None else unseal(kind, sealed)
    except StoreError as error:
        content = str(error)
    if isinstance(content, str):
        findings.add("own-file", Severity.WRONG, name, f"{content}; {effect}", "move it aside")
        return None
    return content


def check_config(root: Path, findings: Findings) -> dict[str, bool]:
    """Return whether each ``config/*.json`` can be read; add a finding for one that cannot."""
    readable: dict[str, bool] = {}
    for name, is_directory, _ in list_directory(root / "config"):
        if is_directory or name.endswith(".tmp"):
            continue
        if not name.endswith((".json", ".json.bak")):
            continue
        readable[name] = json_of(root / "config" / name) is not None
    for name, is_good in readable.items():
        path = f"config/{name}"
        if is_good or name.endswith(".bak"):
            if not is_good:
                findings.add("config-backup", Severity.NOTE, path, "is not a JSON object; the file itself decides")
        elif readable.get(f"{name}.bak"):
            text = "is not a JSON object; the broker falls back to its .bak"
            findings.add("config", Severity.WRONG, path, text, f"restore it from {name}.bak")
        else:
            text = "is not a JSON object, and no .bak is one: the broker does not start"
            findings.add("config", Severity.LOSS, path, text, "move it aside; the broker starts without its content")
    for name, is_good in readable.items():
        if name.endswith(".bak") and is_good and name.removesuffix(".bak") not in readable:
            text = "exists without its file; the broker reads it"
            findings.add("config-backup", Severity.NOTE, f"config/{name}", text)
    return readable


def json_of(path: Path) -> dict[str, object] | None:
    """Return the JSON object in a file in RocketMQ's dialect; None without one."""
    try:
        content = read_small(path)
        if not content:
            return None
        value: dict[str, object] = loads(content, dict)
        return value
    except (StoreError, ProtocolError, RecursionError):
        return None


def committed_offsets(root: Path) -> dict[tuple[str, str, int], int]:
    """Return (topic, group, queue id) -> committed offset, from ``config/consumerOffset.json``."""
    table = (json_of(root / "config" / "consumerOffset.json") or {}).get("offsetTable")
    offsets: dict[tuple[str, str, int], int] = {}
    if isinstance(table, dict):
        for name, queues in table.items():
            topic, at, group = str(name).partition("@")
            if at and isinstance(queues, dict):
                for queue_id, offset in queues.items():
                    if str(queue_id).isdigit() and isinstance(offset, int):
                        offsets[topic, group, int(queue_id)] = offset
    return offsets


def batch_topics(root: Path) -> set[str]:
    """Return the topics whose attribute ``queue.type`` is BatchCQ, from ``config/topics.json`` (or its .bak)."""
    found = set()
    for topic, settings in (_topics(root) or {}).items():
        attributes = settings.get("attributes") if isinstance(settings, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            found.add(str(topic))
    return found


def topic_names(root: Path) -> set[str] | None:
    """Return the topics in ``config/topics.json`` (or its .bak); None if neither can be read."""
    topics = _topics(root)
    return None if topics is None else {str(topic) for topic in topics}


def _topics(root: Path) -> dict[object, object] | None:
    for name in ("topics.json", "topics.json.bak"):
        table = (json_of(root / "config" / name) or {}).get("topicConfigTable")
        if isinstance(table, dict):
            return table
    return None
