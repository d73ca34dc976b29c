"""What a verified token says of its bearer."""

from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from sprocket.common.revision import Revision


class Bearer(Protocol):
    """A connection, or a stream, of a peer that has presented a token."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedToken:
    """A token whose signature and claims were right when it was verified.

    Times are seconds since the epoch; `expires_at_s` is None for a token that never expires.  `revision` rises when the
    token ends, so that what was made of it ends, too, and `bearers` are closed.  `text` is the token itself: a secret.
    """

    user: str
    roles: tuple[str, ...]
    token_id: str | None
    issuer: str | None
    issued_at_s: float | None
    expires_at_s: float | None
    text: str = field(repr=False)
    revision: Revision = field(default_factory=Revision, repr=False)
    bearers: "WeakSet[Bearer]" = field(default_factory=WeakSet, repr=False)
