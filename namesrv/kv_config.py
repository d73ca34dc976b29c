"""The KV configuration: texts by namespace and key, the only thing that a name server keeps on disk.

The file is ``{"configTable":{"<namespace>":{"<key>":"<value>"}}}``.
Source: RocketMQ 5.3.3, `KVConfigManager`, `KVConfigSerializeWrapper`, `NamesrvUtil`.
"""

import logging
from pathlib import Path

import msgspec

from remoting.fastjson import dumps, loads
from sprocket.common.atomic_file import read_whole, write_whole
from sprocket.common.errors import ConfigError, ProtocolError, SprocketError

logger = logging.getLogger(__name__)

# Order of queues by topic; `NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG`.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class KVConfigNotWritten(SprocketError):
    """The file could not be written; nothing has changed."""


class _Content(msgspec.Struct, rename="camel"):
    config_table: Table = {}


class KVConfig:
    """The table and its file; what a call has changed is on disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = {}

    def load(self) -> None:
        """Read the file, if there is one.  Raises ConfigError for one that cannot be understood."""
        try:
            content = read_whole(self._path)
            self._table = loads(content, _Content).config_table if content else {}
        except (OSError, ProtocolError) as error:
            raise ConfigError(f"{self._path}: not a KV configuration: {error}; repair or remove the file") from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Keys and values of a namespace; None for one that never had any."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises KVConfigNotWritten."""
        self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})
        logger.info("event=kv_put namespace=%s key=%s value=%r", namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Raises KVConfigNotWritten; a key that is not there is no error."""
        if self.get(namespace, key) is None:
            return
        kept = {name: value for name, value in self._table[namespace].items() if name != key}
        self._replace({**self._table, namespace: kept})
        logger.info("event=kv_deleted namespace=%s key=%s", namespace, key)

    def _replace(self, table: Table) -> None:
        try:
            write_whole(self._path, dumps(_Content(table)))
        except OSError as error:
            raise KVConfigNotWritten(f"{self._path}: {error.strerror}; nothing was changed") from error
        self._table = table
