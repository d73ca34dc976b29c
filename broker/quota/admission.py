"""Admission of requests by their buckets."""

import logging
from typing import Any, Protocol

from broker.quota.bucket import Bucket, Buckets, QuotaExceeded, charge
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.command import Request

logger = logging.getLogger(__name__)


class ChargedPlan(Protocol):
    """Part of the plan of a send."""

    @property
    def buckets(self) -> Buckets: ...

    @property
    def is_retry(self) -> bool: ...


def spend(plan: ChargedPlan, callers: Buckets, request: Request[Any], messages: int = 1) -> None:
    """Charge a send with some messages to the buckets of its plan and of its sender.  A retry was charged before.

    Raises QuotaExceeded, with nothing charged, if a bucket does not admit it.
    """
    buckets = () if plan.is_retry else plan.buckets + callers
    for bucket in buckets:
        if not bucket.left():
            bucket.tally.exceeded += messages
            note_exceeded(bucket, request)
            raise QuotaExceeded(bucket, bucket.wait_s())
    charge(buckets, messages, sent_bytes(request))


def sent_bytes(request: Request[Any]) -> int:
    """Return the size of a send: its body and its properties, as they were sent."""
    text = request.header.properties or ""
    return len(request.body) + (len(text) if text.isascii() else len(text.encode()))


def note_exceeded(bucket: Bucket, request: Request[Any]) -> None:
    """Write a line about a quota that is used up."""
    host, port = request.channel.peer
    # Limited for each quota: otherwise one with many senders would hide the others.
    peer_lines.warning(
        logger, str(bucket), "event=quota_exceeded quota=%r peer=%s:%d code=%d", str(bucket), host, port, request.code
    )
