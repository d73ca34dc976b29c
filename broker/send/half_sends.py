"""Fast path of sends of half messages, which does not parse the properties into a mapping.

It returns None for other forms of such a send; `broker.send.intake` then makes the same message of it.
Source: RocketMQ 5.3.3, `TransactionalMessageBridge.parseHalfMessageInner`.
"""

import re
from typing import Any, Final

from broker.config.live_config import LiveConfig
from broker.send.planner import SendPlan
from broker.transaction.half_message import QUEUE_ID, TRANSACTION_MASK
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.command import Request
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from store.record.record import PendingMessage, TagsCodes

_UNIQUE_KEY: Final = names.encoded_name(names.UNIQ_KEY)
_TAGS: Final = names.encoded_name(names.TAGS)
_PREPARED: Final = re.compile(r"(?:\A|\x02)TRAN_MSG\x01true(?:\x02|\Z)")
_GROUP: Final = re.compile(r"(?:\A|\x02)PGROUP\x01[^\x02]+(?:\x02|\Z)")


class HalfSends:
    """Encoder of messages for the half topic.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, tags_codes: TagsCodes) -> None:
        self._config = config
        self._tags_codes = tags_codes

    def message(
        self, request: Request[Any], plan: SendPlan, born_host: bytes, suffix: bytes
    ) -> tuple[PendingMessage, bytes] | None:
        """Return the half message of a request of the kind HALF, and its unique key.

        `suffix` are the properties that the broker adds.  Returns None for what `MessageIntake.message` must decide.
        """
        header, body, text = request.header, request.body, request.header.properties
        if (
            text.count("UNIQ_KEY") != 1
            or text.count("PGROUP") != 1
            or _PREPARED.search(text) is None
            or _GROUP.search(text) is None
            or self._config.broker.reject_transaction_message
            or not 0 < len(body) <= self._config.store.max_message_size
        ):
            return None
        properties = (text if text[-1] == "\x02" else text + "\x02").encode()
        key = find_last(properties, _UNIQUE_KEY)
        if not key:
            return None
        place = key, plan.topic.encode(), plan.queue_id
        properties += suffix + b"__transactionId__\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % place
        if len(properties) > MAX_PROPERTIES_BYTES:
            return None
        pending = PendingMessage(
            TRANS_HALF_TOPIC, QUEUE_ID, body, properties, self._tags_codes.of_tag(find_last(properties, _TAGS) or b""),
            header.flag, (header.sys_flag | plan.sys_flag) & ~TRANSACTION_MASK, header.born_timestamp, born_host,
            header.reconsume_times or 0,
        )  # fmt: skip
        return pending, key
