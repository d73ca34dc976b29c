"""KV configuration: texts by namespace and key, the only thing that a name server keeps on disk.

The file is ``{"configTable":{"<namespace>":{"<key>":"<value>"}}}``.  Beyond RocketMQ its size is limited, because
anybody may put values into an open name server.
Source: RocketMQ 5.3.3, `KVConfigManager`, `KVConfigSerializeWrapper`, `NamesrvUtil`.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ConfigError, RequestError, StoreError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

# Order of queues by topic; `NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG`.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]
# Characters of a value in a log line.
_MAX_SHOWN_CHARS: Final = 256
# Entries of one write that get their own log line.
_MAX_LINES: Final = 16


class KVConfigNotWritten(StoreError):
    """The file could not be written; nothing has changed."""

    response_code: ClassVar[int] = ResponseCode.SYSTEM_ERROR


class _Content(msgspec.Struct, rename="camel"):
    config_table: Table = {}


class KVConfig(SavedTable):
    """Table and its file.  A change is in memory at once, and in the file after `save`."""

    def __init__(self, path: Path) -> None:
        super().__init__(ConfigFile(path))
        self._table: Table = {}
        self._sizes: dict[str, int] = {}  # approximate bytes by namespace

    def load(self) -> bool:
        """Load the file, or its backup.  Raises ConfigError if neither can be read."""
        try:
            return super().load()
        except StoreError as error:
            raise ConfigError(f"not a KV configuration: {error}") from None

    def decode(self, content: bytes) -> None:
        """Take over the texts of the file.  Raises ProtocolError."""
        self._table = loads(content, _Content).config_table
        self._sizes = {
            name: sum(_size(key, value) for key, value in table.items()) for name, table in self._table.items()
        }

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None if the namespace does not have the key."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return keys and values of a namespace, not to be changed; None if it never had any."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.  Raises RequestError above a limit, with nothing changed."""
        before = self.get(namespace, key)
        self._check(namespace, key, value, 0 if before is None else _size(key, before))
        self._replace(namespace, key, value, is_new=namespace not in self._table)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if it exists."""
        if self.get(namespace, key) is not None:
            self._replace(namespace, key, None, is_new=False)

    def _check(self, namespace: str, key: str, value: str, freed_bytes: int) -> None:
        size = _size(key, value)
        held = self._sizes.get(namespace, 0)
        total = sum(self._sizes.values()) + (0 if namespace in self._sizes else len(namespace.encode()))
        advice = "delete what is no longer used"
        for what, bytes_after, limit in (
            ("the key and its value have", size, limits.MAX_KV_VALUE_BYTES),
            ("the namespace name has", len(namespace.encode()), limits.MAX_KV_NAME_BYTES),
            ("the namespace would have", held - freed_bytes + size, limits.MAX_KV_NAMESPACE_BYTES),
            ("the KV configuration would have", total - freed_bytes + size, limits.MAX_KV_BYTES),
        ):
            if bytes_after > limit:
                remark = f"KV value refused: {what} {bytes_after} bytes, the limit is {limit}; {advice}"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if namespace not in self._table and len(self._table) >= limits.MAX_KV_NAMESPACES:
            remark = f"KV value refused: there are {len(self._table)} namespaces, the limit; {advice}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)

    def _replace(self, namespace: str, key: str, value: str | None, *, is_new: bool) -> None:
        before = self.get(namespace, key)
        self._set(namespace, key, value)

        def undo() -> None:
            self._set(namespace, key, before)
            if is_new and not self._table[namespace]:
                del self._table[namespace], self._sizes[namespace]

        self._change((namespace, key), undo)

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        table = self._table.setdefault(namespace, {})
        size = self._sizes.get(namespace, 0)
        if key in table:
            size -= _size(key, table[key])
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
            size += _size(key, value)
        self._sizes[namespace] = size

    # The file

    def _content(self) -> Callable[[], bytes]:
        table = {namespace: dict(values) for namespace, values in self._table.items()}
        return lambda: msgspec.json.encode(_Content(table))

    def _write(self, content: bytes) -> None:
        try:
            super()._write(content)
        except StoreError as error:
            raise KVConfigNotWritten(f"{error}; nothing was changed") from error

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        for namespace, key in changes[:_MAX_LINES]:
            value = self.get(namespace, key)
            if value is None:
                peer_lines.info(logger, "", "event=kv_deleted namespace=%s key=%s", namespace, key)
            else:
                shown = value[:_MAX_SHOWN_CHARS]
                peer_lines.info(
                    logger, "", "event=kv_put namespace=%s key=%s value=%r chars=%d", namespace, key, shown, len(value)
                )
        if len(changes) > _MAX_LINES:
            peer_lines.info(logger, "", "event=kv_changed count=%d", len(changes))


def _size(key: str, value: str) -> int:
    return len(key.encode()) + len(value.encode())
