"""Transaction id that a client gets: the message's id and the place of the half message; pure.

RocketMQ's proxy remembers the places, so a transaction ends only at the proxy through which it began, and not after
30 s.  Here the id says it all: any proxy can end it, also after a restart.  A forged id ends nothing else: the broker
compares the producer group, which is the topic that the caller may write to.
"""

import base64
import binascii
import json
from typing import NamedTuple

from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire

_MAX_CHARS = 2048
_SEPARATOR = "~"


class TransactionId(NamedTuple):
    """An open transaction: message id, broker, offset in the queue of half messages, and offset in the log."""

    message_id: str
    broker_name: str
    queue_offset: int
    log_offset: int

    def encode(self) -> str:
        """Return the text that a client gets."""
        place = json.dumps([self.broker_name, self.queue_offset, self.log_offset], separators=(",", ":"))
        return f"{self.message_id}{_SEPARATOR}{base64.urlsafe_b64encode(place.encode()).decode()}"


def parse_transaction_id(text: str) -> TransactionId:
    """Return the transaction that `text` names.  Raises Refusal, with RocketMQ's code for one that is not known."""
    message_id, separator, place = text.rpartition(_SEPARATOR)
    try:
        if not separator or len(text) > _MAX_CHARS:
            raise ValueError("no separator")
        broker_name, queue_offset, log_offset = json.loads(base64.urlsafe_b64decode(place.encode()))
        if type(broker_name) is not str or type(queue_offset) is not int or type(log_offset) is not int:
            raise ValueError("no place")
        if not (0 <= queue_offset < 2**63 and 0 <= log_offset < 2**63):
            raise ValueError("no offset")
    except (ValueError, TypeError, binascii.Error):
        raise Refusal(wire.INTERNAL_SERVER_ERROR, "cannot found transaction data") from None
    return TransactionId(message_id, broker_name, queue_offset, log_offset)
