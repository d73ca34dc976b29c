"""Audit log: one line for each decision, in a logger of its own, at a limited rate.

A line always has the same keys in the same order.  Values that come from a peer are JSON strings::

    event=access decision=deny code=17 name=UPDATE_AND_CREATE_TOPIC account="app" token="" certificate=""
    peer="10.0.0.7:4711" resources="Topic:orders=Create" reason="..."

`token` is the id (jti) of the token that named the account.  No token is ever written.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from acl.access_request import AccessRequest
from acl.auth.requests import BODY_CODES, required
from acl.gate_settings import GateSettings
from acl.tokens.token_text import masked
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codes import RequestCode

# Operators route the audit lines by this name.
audit = logging.getLogger("sprocket.audit")

# Characters of one value: a peer chooses the length of its names.
_MAX_CHARACTERS: Final = 256
# A body is read for its resource names only up to this size: a refused caller must not choose the cost of a line.
_MAX_READ_BYTES: Final = 4096
_quoted = msgspec.json.Encoder().encode
Shown = Callable[[str], tuple[str, str]]


def without_tokens(access_key: str) -> tuple[str, str]:
    """Return what may be shown of an access key where no token is known."""
    return masked(access_key), ""


class AuditLog:
    """Writer of the decisions at one port.  It belongs to the event loop's thread.

    `shown` returns what a line may show of an access key: the account, and the id of its token.
    """

    def __init__(self, settings: GateSettings, clock: Clock, shown: Shown = without_tokens) -> None:
        self._shown = shown
        self._max_lines = settings.audit_lines_per_second
        self._clock = clock
        self._second = 0
        self._lines = 0  # of this second
        self._left_out = 0
        self.writes_allowed = settings.audit_allowed

    def refused(self, asked: AccessRequest, peer: tuple[str, int], reason: str) -> None:
        """Log that a request is refused."""
        if self._has_room():
            audit.warning(
                "event=access decision=deny code=%s name=%s account=%s token=%s certificate=%s peer=%s resources=%s"
                " reason=%s",
                *_facts(asked, peer, reason, self._shown),
            )

    def allowed(self, asked: AccessRequest, peer: tuple[str, int]) -> None:
        """Log that a request is served."""
        if self._has_room():
            audit.info(
                "event=access decision=allow code=%s name=%s account=%s token=%s certificate=%s peer=%s resources=%s"
                " reason=%s",
                *_facts(asked, peer, "", self._shown),
            )

    def flush(self) -> None:
        """Log how many lines were left out, if any.  Called about once a second."""
        if self._left_out:
            audit.warning("event=access_left_out lines=%d", self._left_out)
            self._left_out = 0

    def _has_room(self) -> bool:
        second = int(self._clock.monotonic())
        if second != self._second:
            self.flush()
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > self._max_lines:
            self._left_out += 1
            return False
        return True


def _facts(asked: AccessRequest, peer: tuple[str, int], reason: str, shown: Shown) -> tuple[object, ...]:
    """Return the values of a line, in the order of its keys."""
    account, token_id = shown(asked.access_key or "")
    return (
        asked.code,
        code_name(asked.code),
        _shown(account),
        _shown(token_id),
        _shown(asked.certificate_name or ""),
        _shown(f"{peer[0]}:{peer[1]}"),
        _shown(_resources(asked)),
        _shown(reason),
    )


def code_name(code: int) -> str:
    """Return RocketMQ's name of a code."""
    try:
        return RequestCode(code).name
    except ValueError:
        return "UNKNOWN"


def _resources(asked: AccessRequest) -> str:
    if asked.code in BODY_CODES and len(asked.body) > _MAX_READ_BYTES:
        return "?"
    try:
        return ",".join(one.key for one in required(asked))
    except ProtocolError:
        return "?"


def _shown(text: str) -> str:
    if len(text) > _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS] + "..."
    return _quoted(text.encode("utf-8", "replace").decode()).decode()
