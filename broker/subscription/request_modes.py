"""Which groups take the messages of a topic by pop instead of pull: ``config/messageRequestMode.json``.

Source: RocketMQ 5.3.3, `MessageRequestModeManager`.
"""

import logging

import msgspec

from broker.config.config_file import ConfigFile
from broker.config.live_config import LiveConfig
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.topic_names import RETRY_PREFIX

logger = logging.getLogger(__name__)

ModesByGroup = dict[str, SetMessageRequestModeRequestBody]


class RequestModeTable(msgspec.Struct, rename="camel"):
    """Content of messageRequestMode.json, and body of the response to GET_ALL_MESSAGE_REQUEST_MODE."""

    message_request_mode_map: dict[str, ModesByGroup] = {}  # topic -> group -> mode


class RequestModes:
    """Table of modes by topic and group.  A mode that an operator sets is in the file before `set` returns."""

    def __init__(self, config: LiveConfig, file: ConfigFile[RequestModeTable]) -> None:
        self._config = config
        self._file = file
        self._by_topic: dict[str, ModesByGroup] = {}
        self.changes = 0  # grows with every change

    def load(self) -> None:
        """Load the file.  Raises `StoreError` if the file and its backup cannot be read."""
        content = self._file.load()
        if content is not None:
            self._by_topic = content.message_request_mode_map
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
        """Set how a group consumes a topic.  Raises `StoreError`; the mode is then unchanged."""
        after = self._by_topic | {
            mode.topic: self._by_topic.get(mode.topic, {}) | {mode.consumer_group: mode},
        }
        self._file.write(pretty(RequestModeTable(after)))
        self._by_topic = after
        self.changes += 1
        logger.info(
            "event=request_mode_set topic=%s group=%s mode=%s share=%d",
            mode.topic, mode.consumer_group, mode.mode, mode.pop_share_queue_num,
        )  # fmt: skip

    def encode(self) -> bytes:
        """Return the body of the response to GET_ALL_MESSAGE_REQUEST_MODE."""
        return dumps(RequestModeTable(self._by_topic))

    # A slave's table is its master's

    def replace(self, table: RequestModeTable) -> None:
        """Replace the table by a master's; does not save it."""
        if table.message_request_mode_map != self._by_topic:
            self._by_topic = table.message_request_mode_map
            self._file.is_unsaved = True
            self.changes += 1

    def take_unsaved(self) -> RequestModeTable | None:
        """Return the unsaved replaced table, which the caller must `save` as `pretty` text; None if there is none."""
        if not self._file.take_unsaved():
            return None
        return RequestModeTable(self._by_topic)

    def save(self, content: bytes) -> None:
        """Write the file; may run in another thread.  Raises `StoreError`; the table is then still unsaved."""
        self._file.save(content)
