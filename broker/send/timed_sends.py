"""Fast path of sends with a delivery time, which does not parse the properties into a mapping.

It returns None for other forms of such a send; `broker.send.intake` then makes the same message of it.
Source: RocketMQ 5.3.3, `HookUtils.handleScheduleMessage`.
"""

import re
from typing import Any, Final

from broker.config.live_config import LiveConfig
from broker.send.planner import SendPlan
from broker.timer.recall_handle import handle_text
from broker.timer.timer_intake import TIMER_NAMES, TimerIntake
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.command import Request
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.record.record import PendingMessage, TagsCodes

_UNIQUE_KEY: Final = names.encoded_name(names.UNIQ_KEY)
_TAGS: Final = names.encoded_name(names.TAGS)
_ASKED: Final = re.compile(f"(?:\\A|\x02)({'|'.join(TIMER_NAMES)})\x01([^\x02]+)\x02".encode())


class TimedSends:
    """Encoder of messages for the timer topic.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, tags_codes: TagsCodes, timer: TimerIntake) -> None:
        self._config = config
        self._tags_codes = tags_codes
        self._timer = timer

    def message(
        self, request: Request[Any], plan: SendPlan, born_host: bytes, suffix: bytes
    ) -> tuple[PendingMessage, bytes, bytes] | None:
        """Return the message of a request of the kind TIMED, its unique key and its recall handle.

        `suffix` are the properties that the broker adds.  Returns None for what `MessageIntake.message` must decide.
        Raises RequestError for a time that is refused.
        """
        header = request.header
        text, body = header.properties, request.body
        if text.count("UNIQ_KEY") != 1 or not 0 < len(body) <= self._config.store.max_message_size:
            return None
        properties = (text if text[-1] == "\x02" else text + "\x02").encode()
        key = find_last(properties, _UNIQUE_KEY)
        asked = _ASKED.search(properties)
        if not key or asked is None or not key.isalnum():
            return None
        topic, queue_id, timed = plan.topic, plan.queue_id, {asked[1].decode(): asked[2].decode()}
        if self._timer.place(topic, queue_id, timed)[0] != TIMER_TOPIC:
            return None
        out_ms, real_topic = timed[names.TIMER_OUT_MS], topic.encode()
        place = out_ms.encode(), real_topic, queue_id
        properties += suffix + b"TIMER_OUT_MS\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % place
        if len(properties) > MAX_PROPERTIES_BYTES:
            return None
        pending = PendingMessage(
            TIMER_TOPIC, 0, body, properties, self._tags_codes.of_tag(find_last(properties, _TAGS) or b""), header.flag,
            header.sys_flag | plan.sys_flag, header.born_timestamp, born_host, header.reconsume_times or 0,
        )  # fmt: skip
        handle = handle_text(real_topic, self._config.broker.broker_name.encode(), int(out_ms), key)
        return pending, key, handle
