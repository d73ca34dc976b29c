"""Sessions of visitors who logged in, a bounded table of random ids; tokens of forms.  Pure.

A token is against cross-site request forgery: an HMAC over the id in the visitor's cookie.  Another site can send the
cookie, but cannot read the token.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Session(Generic[T]):
    """A visitor who logged in; `held` is what belongs to the session, such as connections."""

    id: str
    user: str
    held: T
    begun_s: float
    used_s: float


class Sessions(Generic[T]):
    """Table of sessions by id.  Times are seconds of a clock that never steps back.

    A session ends after `idle_s` without use, after `limit_s` in any case, or as the least recently used one when a
    login finds `max_sessions`.  `on_end` gets what an ended session held.
    """

    def __init__(
        self, new_id: Callable[[], str], on_end: Callable[[T], None], *, max_sessions: int, idle_s: float,
        limit_s: float,
    ) -> None:  # fmt: skip
        self._new_id = new_id
        self._on_end = on_end
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._limit_s = limit_s
        # The least recently used one is first.
        self._sessions: OrderedDict[str, Session[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str, held: T, now: float) -> Session[T]:
        """Return a new session."""
        self.expire(now)
        while len(self._sessions) >= self._max_sessions:
            self.end(next(iter(self._sessions)))
        session = Session(self._new_id(), user, held, now, now)
        self._sessions[session.id] = session
        return session

    def find(self, id_: str, now: float) -> Session[T] | None:
        """Return the session with this id and record its use; None if there is none or it expired."""
        self.expire(now)
        session = self._sessions.get(id_)
        if session is not None:
            session.used_s = now
            self._sessions.move_to_end(id_)
        return session

    def end(self, id_: str) -> None:
        """End a session, if there is one with this id."""
        session = self._sessions.pop(id_, None)
        if session is not None:
            self._on_end(session.held)

    def expire(self, now: float) -> None:
        """End the sessions whose time is over."""
        over = [
            session.id
            for session in self._sessions.values()
            if now - session.used_s >= self._idle_s or now - session.begun_s >= self._limit_s
        ]
        for id_ in over:
            self.end(id_)

    def end_all(self) -> None:
        """End every session."""
        for id_ in list(self._sessions):
            self.end(id_)


def token_of(key: bytes, cookie_id: str) -> str:
    """Return the token of forms for the visitor with this cookie."""
    return hmac.new(key, f"form:{cookie_id}".encode(), hashlib.sha256).hexdigest()


def is_token(key: bytes, cookie_id: str, given: str) -> bool:
    """Return whether `given` is the token of the visitor with this cookie, in constant time."""
    return hmac.compare_digest(token_of(key, cookie_id).encode(), given.encode("utf-8", "replace"))
