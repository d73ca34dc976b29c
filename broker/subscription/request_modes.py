"""Which groups take the messages of a topic by pop instead of pull: ``config/messageRequestMode.json``.

Source: RocketMQ 5.3.3, `MessageRequestModeManager`.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from broker.config.live_config import LiveConfig
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.topic_names import RETRY_PREFIX

logger = logging.getLogger(__name__)

ModesByGroup = dict[str, SetMessageRequestModeRequestBody]


class RequestModeTable(msgspec.Struct, rename="camel"):
    """Content of messageRequestMode.json, and body of the response to GET_ALL_MESSAGE_REQUEST_MODE."""

    message_request_mode_map: dict[str, ModesByGroup] = {}  # topic -> group -> mode


class RequestModes(SavedTable):
    """Table of modes by topic and group."""

    def __init__(self, config: LiveConfig, file: ConfigFile) -> None:
        super().__init__(file)
        self._config = config
        self._by_topic: dict[str, ModesByGroup] = {}  # replaced, never changed

    def decode(self, content: bytes) -> None:
        """Take over the modes of the file.  Raises ProtocolError."""
        self._by_topic = loads(content, RequestModeTable).message_request_mode_map
        logger.info("event=request_modes_loaded topics=%d", len(self._by_topic))

    def find(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Return how a group consumes a topic: as set, else as configured.  A retry topic is pulled unless set."""
        found = self._by_topic.get(topic, {}).get(group)
        if found is not None:
            return found
        broker = self._config.broker
        if topic.startswith(RETRY_PREFIX) or broker.default_message_request_mode != "POP":
            return SetMessageRequestModeRequestBody(topic, group, "PULL")
        return SetMessageRequestModeRequestBody(topic, group, "POP", broker.default_pop_share_queue_num)

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set how a group consumes a topic.  Wait for `save` until the file has the mode; if that fails, undo it."""
        before = self._by_topic
        self._by_topic = before | {mode.topic: before.get(mode.topic, {}) | {mode.consumer_group: mode}}

        def undo() -> None:
            self._by_topic = before

        self._change((mode.topic, mode.consumer_group), undo)

    def _content(self) -> Callable[[], bytes]:
        table = RequestModeTable(self._by_topic)
        return lambda: pretty(table)

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        for topic, group in changes:
            mode = self.find(topic, group)
            peer_lines.info(
                logger, "", "event=request_mode_set topic=%s group=%s mode=%s share=%d",
                topic, group, mode.mode, mode.pop_share_queue_num,
            )  # fmt: skip

    def encode(self) -> bytes:
        """Return the body of the response to GET_ALL_MESSAGE_REQUEST_MODE."""
        return dumps(RequestModeTable(self._by_topic))

    # A slave's table is its master's

    def replace(self, table: RequestModeTable) -> None:
        """Replace the table by a master's; does not save it."""
        if table.message_request_mode_map != self._by_topic:
            self._by_topic = table.message_request_mode_map
            self.changes += 1
