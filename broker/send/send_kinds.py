"""What kind of send a message is, by the names of its properties.

Most hold none of a few short texts and need no closer look: one search tells that of all sends of a read.  In the
others the names decide: a value that happens to hold such a text changes nothing.
"""

import re
from enum import IntEnum
from typing import Final

from broker.timer.timer_intake import TIMER_NAMES
from sprocket.remoting.message import properties as names


class SendKind(IntEnum):
    """How a message that is neither a retry nor a batch becomes what is stored."""

    PLAIN = 0  # the properties are stored as they are
    HALF = 1  # a half message of a transaction
    TIMED = 2  # a message for a time of its own
    OTHER = 3  # all of these need a mapping of the properties


PLAIN: Final = SendKind.PLAIN
# Each name that makes a message other than plain holds one of the texts that `holds_mark` looks for.
_DECIDING: Final = frozenset(
    {
        *TIMER_NAMES,
        names.DELAY,
        names.TRANSACTION_PREPARED,
        names.CLUSTER,  # has been through a broker
        names.POP_CK,
        names.INNER_NUM,
        names.INNER_BASE,
        names.INNER_MULTI_QUEUE_OFFSET,
    }
)
# Names with a meaning to a broker: beside any of them neither a half message nor a timed one is of the usual form.
_NAMED: Final = re.compile(
    r"(?:\A|\x02)(DELAY|TIMER_\w+|TRAN_\w+|TRANSACTION_\w+|__transactionId__|CLUSTER|POP_CK|INNER_\w+|REAL_\w+)(?=\x01)"
)


def holds_mark(text: str) -> bool:
    """Whether `text`, the properties of one message or of many, may say of any that it is not plain."""
    return "DEL" in text or "TRAN_" in text or "CLUSTER" in text or "POP_CK" in text or "INNER_" in text


def kind_of(properties: str) -> SendKind:
    """Return the kind of a message with these properties."""
    # As `holds_mark`, whose call would take as long again.
    if not (
        "DEL" in properties
        or "TRAN_" in properties
        or "CLUSTER" in properties
        or "POP_CK" in properties
        or "INNER_" in properties
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
