"""Fast path of ends of transactions: the compiled engine makes the real messages from the half messages' bytes.

It takes all ends of a read or none.  `TransactionProcessor` decides about all others, one by one; both store the same
bytes.
"""

from collections.abc import Sequence
from typing import Any, Final

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.transaction.half_message import COMMIT, TRANSACTION_MASK
from broker.transaction.transactions import Ended, Transactions
from sprocket.common.errors import RequestError, StoreError
from sprocket.remoting.command import Request
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC
from store.record.record import topic_field

_HALF_TOPIC: Final = topic_field(TRANS_HALF_TOPIC)[1]
_OUTCOMES: Final = (COMMIT, TRANSACTION_MASK)


def usual_ends(
    transactions: Transactions, run: Sequence[Request[EndTransactionRequestHeader]]
) -> tuple[Any, list[Ended]] | None:
    """Return the real messages of a read's ends, and what they end; None if one of them is unusual or wrong."""
    moves = transactions.new_moves()
    if moves is None:
        return None
    ends: dict[int, Ended] = {}
    try:
        for request in run:
            header = request.header
            offset, outcome = header.tran_state_table_offset, header.commit_or_rollback
            if outcome not in _OUTCOMES or offset in ends or not transactions.open.is_open(offset):
                return None
            record = transactions.half_record(offset, header.commit_log_offset)
            if record is None:
                return None
            group, is_commit = header.producer_group.encode(), outcome == COMMIT
            half = moves.add_half(record, _HALF_TOPIC, offset, header.commit_log_offset, group, is_commit)
            if half is None:
                return None
            topic, born_timestamp = half
            require_topic(request, topic, AuthAction.PUB)
            ends[offset] = Ended(topic, born_timestamp, is_commit, offset)
    except (RequestError, StoreError):
        return None
    return moves, list(ends.values())
