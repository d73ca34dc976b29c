"""Which messages are plain: their properties are stored as they are.  Others need the properties as a mapping.

Most properties contain none of a few short texts, so the message is plain: one search tells that for all sends of a
read.  Otherwise the property names decide: a value that happens to contain such a text changes nothing.
"""

import re
from typing import Final

from broker.timer.timer_intake import TIMER_NAMES
from sprocket.remoting.message import properties as names

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
        names.INNER_SHARDING,
        names.LITE_TOPIC,
        names.PRIORITY,
    }
)
_NAMED: Final = re.compile(rf"(?:\A|\x02)(?:{'|'.join(map(re.escape, sorted(_DECIDING)))})\x01")


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


def is_plain(properties: str) -> bool:
    """Return whether a message with these properties, which is neither a retry nor a batch, is plain."""
    return not holds_mark(properties) or _NAMED.search(properties) is None
