"""Passes: what a gate has admitted on a connection, so that the next request like it costs one compiled call.

A pass is given after the whole check has admitted a request of a send, pull or pop.  It holds while nothing that the
check depends on has changed: gate, policies, account, connection, code, and the names that permissions depend on.
Every request still proves its signature, over the exact bytes of its fields and its body.  A pass never refuses: a
request that it does not cover takes the whole check.  With pure Python there are no passes.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from sprocket.common.limits import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from sprocket.engine.choice import native
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.properties import INNER_MULTI_DISPATCH, TIMER_DEL_UNIQKEY

_engine: Final = native("sprocket.remoting.signatures_native")
# Names of one pass; when there are more, all are forgotten.  Longer ones, which no broker has, are not kept.
MAX_NAMES: Final = 1024
_MAX_CHARS: Final = MAX_TOPIC_CHARS + MAX_GROUP_CHARS
Names = tuple[str, ...]


class Keys(Protocol):
    """Part of a policy that passes need."""

    @property
    def revision(self) -> int:
        """Number that increases whenever an account or a permission changes."""
        ...

    def secret_key(self, account: str, /) -> str | None:
        """Return the secret key of an account that may sign; None without one."""
        ...


def _sent_to(header: Any) -> Names | None:
    """Return the topic of a send; None if its permissions also depend on its properties or its body."""
    properties = header.properties
    if header.batch or (
        properties is not None and (INNER_MULTI_DISPATCH in properties or TIMER_DEL_UNIQKEY in properties)
    ):
        return None
    return (header.topic,)


def _consumed(header: Any) -> Names | None:
    return header.topic, header.consumer_group


# What the permissions of a request depend on, by code.  See `acl.grants` and `acl.auth.requests`.
NAMES_OF: Final[dict[int, Callable[[Any], Names | None]]] = {
    int(RequestCode.SEND_MESSAGE): _sent_to,
    int(RequestCode.SEND_MESSAGE_V2): _sent_to,
    int(RequestCode.PULL_MESSAGE): _consumed,
    int(RequestCode.LITE_PULL_MESSAGE): _consumed,
    int(RequestCode.POP_MESSAGE): _consumed,
}


class Pass:
    """Pass of one account for requests of one code on one connection."""

    __slots__ = ("_names_of", "_policies", "_revision", "account", "proof")

    def __init__(self, policies: tuple[Keys, ...], account: str, secret_key: str, code: int) -> None:
        assert _engine is not None
        self.account = account
        # What a compiled call must find of a request that it admits by this pass.
        self.proof = _engine.Proof(_engine.SigningKey(account, secret_key), MAX_NAMES)
        self._policies = policies
        self._revision = policies[0].revision
        self._names_of = NAMES_OF[code]

    def holds(self, policies: object) -> bool:
        """Return whether nothing has changed since it was given."""
        return policies is self._policies and self._policies[0].revision == self._revision

    def covers(self, header: Any) -> bool:
        """Return whether the check has admitted a request with the same names."""
        names = self._names_of(header)
        return names is not None and self.proof.covers(*names)

    def admit(self, header: Any) -> None:
        """Note that the check has admitted a request with `header`."""
        names = self._names_of(header)
        if names is not None and sum(map(len, names)) <= _MAX_CHARS:
            self.proof.admit(*names)


def given(held: Pass | None, policies: tuple[Keys, ...], account: str, code: int) -> Pass | None:
    """Return the pass of an account that the check has just admitted: `held` if it still holds, else a new one.

    None with pure Python, for other codes, and if several policies decide.
    """
    if _engine is None or code not in NAMES_OF or len(policies) != 1:
        return None
    if held is not None and held.account == account and held.holds(policies):
        return held
    secret_key = policies[0].secret_key(account)
    return None if secret_key is None else Pass(policies, account, secret_key, code)
