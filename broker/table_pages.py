"""Pages of the tables of topics and groups, for slaves that ask for a part at a time.

Source: RocketMQ 5.5.1, `AdminBrokerProcessor.getAllTopicConfig`, `TopicConfigManager.subTopicConfigTable`, and the same
of groups.  There a page is a part of the sorted names; here it has the order of the table, which changes only with
the version.
"""

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

from broker.config.live_config import LiveConfig
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import loads

T = TypeVar("T")
_MAX_VERSION_CHARS = 1024


class TablePages:
    """The pages of one broker, whose sizes its configuration limits."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config

    def page(
        self,
        table: Mapping[str, T],
        version: DataVersion,
        *,
        start: int | None,
        max_count: int | None,
        known: str | None,
    ) -> Mapping[str, T]:
        """Return the entries from number `start` on, or the whole table for a request that names no page.

        `known` is the version, as JSON, that the requester had with its last page.  With another version than the
        table's, the page is the first one, and the version in the response tells so.
        """
        broker = self._config.broker
        if not broker.enable_split_metadata or (start is None and max_count is None and known is None):
            return table
        start = start if start and start > 0 and self._is_current(known, version) else 0
        size = broker.split_metadata_size if max_count is None else min(broker.split_metadata_size, max(0, max_count))
        return dict(islice(table.items(), start, start + size))

    def _is_current(self, known: str | None, version: DataVersion) -> bool:
        if not known or len(known) > _MAX_VERSION_CHARS:
            return False
        try:
            return loads(known.encode(), DataVersion) == version
        except ProtocolError:
            return False
