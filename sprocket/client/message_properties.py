"""Properties of a message: the names that the protocol gives meaning to, and the text they travel as.

Source: RocketMQ 5.3.3, `MessageConst`, `MessageDecoder.messageProperties2String`, `string2messageProperties`.
"""

from collections.abc import Mapping
from typing import Final

from remoting.message_record import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

KEYS: Final = "KEYS"  # separated by blanks
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
SHARDING_KEY: Final = "__SHARDINGKEY"

# Names that a user property may not have: they would change what the message means.
RESERVED: Final = frozenset(
    {KEYS, TAGS, WAIT, DELAY, UNIQ_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES}
    | {TRANSACTION_PREPARED, "REAL_TOPIC", "REAL_QID", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID"}
    | {"TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME"}
    | {"INNER_NUM", "INNER_BASE", "INSTANCE_ID", "__CRC32#"}
)

_NAME_VALUE = NAME_VALUE_SEPARATOR.decode()
_PROPERTY = PROPERTY_SEPARATOR.decode()


def encode(properties: Mapping[str, str]) -> str:
    """``name 0x01 value 0x02 ...``, each property ended by 0x02."""
    return "".join([f"{name}{_NAME_VALUE}{value}{_PROPERTY}" for name, value in properties.items()])


def decode(text: str) -> dict[str, str]:
    """The opposite of `encode`; a piece without a separator is skipped, as in the reference.

    Of a name that comes twice the first counts.  Brokers append the properties of a batch, its UNIQ_KEY among them,
    to those of each message in it; Java's client takes the last, so there all messages of a batch have one id.
    """
    properties: dict[str, str] = {}
    for piece in text.split(_PROPERTY):
        name, separator, value = piece.partition(_NAME_VALUE)
        if separator:
            properties.setdefault(name, value)
    return properties


def separators_in(text: str) -> bool:
    """Whether `text` holds a character that would end a property."""
    return _NAME_VALUE in text or _PROPERTY in text
