"""Kinds of sends, decided by the names of a message's properties.

Most properties contain none of a few short texts, so the message is plain: one search tells that for all sends of a
read.  Otherwise the property names decide: a value that happens to contain such a text changes nothing.
"""

import re
from enum import IntEnum
from typing import Final

from broker.timer.timer_intake import TIMER_NAMES
from sprocket.remoting.message import properties as names


class SendKind(IntEnum):
    """How to convert a message that is neither a retry nor a batch to its stored form."""

    PLAIN = 0  # the properties are stored as they are
    HALF = 1  # a half message of a transaction
    TIMED = 2  # a message with a delay or delivery time of its own
    OTHER = 3  # needs the properties as a mapping


PLAIN: Final = SendKind.PLAIN
# A message with one of these names is not plain.  Each name contains a text that `holds_mark` searches for.
_DECIDING: Final = frozenset(
    {
        *TIMER_NAMES,
        names.DELAY,
        names.TRANSACTION_PREPARED,
        names.CLUSTER,  # the message has passed through a broker
        names.POP_CK,
        names.INNER_NUM,
        names.INNER_BASE,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.IDEMPOTENCE_ID,
        names.INNER_SCHEDULE,
        names.LITE_TOPIC,
        names.PRIORITY,
    }
)
# Names with a meaning to a broker.  A half or timed message with a second one of them is OTHER.
_NAMED: Final = re.compile(
    r"(?:\A|\x02)(DELAY|TIMER_\w+|TRAN_\w+|TRANSACTION_\w+|__transactionId__|CLUSTER|POP_CK|INNER_\w+|REAL_\w+"
    r"|__LITE_TOPIC|_SYS_MSG_PRIORITY_)(?=\x01)"
)


def holds_mark(text: str) -> bool:
    """Whether a message may be other than plain, given `text`, the properties of one or many messages."""
    return (
        "DEL" in text
        or "TRAN_" in text
        or "CLUSTER" in text
        or "POP_CK" in text
        or "INNER_" in text
        or "_SYS_MSG" in text
        or "__LITE" in text
    )


def kind_of(properties: str) -> SendKind:
    """Return the kind of a message with these properties."""
    # The test of `holds_mark`, inline: a call would double its time.
    if not (
        "DEL" in properties
        or "TRAN_" in properties
        or "CLUSTER" in properties
        or "POP_CK" in properties
        or "INNER_" in properties
        or "_SYS_MSG" in properties
        or "__LITE" in properties
    ):
        return PLAIN
    found = _NAMED.findall(properties)
    if _DECIDING.isdisjoint(found):
        return PLAIN
    if len(found) == 1:
        if found[0] == names.TRANSACTION_PREPARED:
            return SendKind.HALF
        if found[0] in TIMER_NAMES:
            return SendKind.TIMED
    return SendKind.OTHER
