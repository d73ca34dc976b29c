"""Passes: what a gate has admitted on a connection, so that the next request like it costs one compiled call.

A pass is given after the whole check has admitted a send, pull, pop or acknowledgement: the connection keeps a `Proof`
for the code.  It holds while nothing that the check depends on has changed: gate, policies, account, connection, code,
and the names that permissions depend on.  Every request still proves its signature, over the exact bytes of its fields
and its body, or presents the same token, which has not ended.  A pass never refuses: a request that it does not cover
takes the whole check.  With pure Python there are no passes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from acl.access_request import Verdict
from sprocket.common.limits import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from sprocket.common.revision import Revision
from sprocket.engine.choice import native
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.message.properties import INNER_MULTI_DISPATCH, TIMER_DEL_UNIQKEY

if TYPE_CHECKING:
    from sprocket.remoting.signatures_native import Proof

_engine: Final = native("sprocket.remoting.signatures_native")
# Names of one pass; when there are more, all are forgotten.  Longer ones, which no broker has, are not kept.
MAX_NAMES: Final = 1024
_MAX_CHARS: Final = MAX_TOPIC_CHARS + MAX_GROUP_CHARS
Names = tuple[str, ...]


class Keys(Protocol):
    """Part of a policy that passes need."""

    @property
    def revision(self) -> Revision:
        """What rises whenever an account or a permission changes."""

    def secret_key(self, account: str, /) -> str | None:
        """Return the secret key of an account that may sign; None without one."""


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
    int(RequestCode.ACK_MESSAGE): _consumed,
}


def covers(proof: "Proof", request: Request[Any]) -> bool:
    """Return whether the check has admitted a request with the same names."""
    names = NAMES_OF[request.code](request.header)
    return names is not None and proof.covers(*names)


def admit(proof: "Proof", request: Request[Any]) -> None:
    """Note that the check has admitted `request`."""
    names = NAMES_OF[request.code](request.header)
    if names is not None and sum(map(len, names)) <= _MAX_CHARS:
        proof.admit(*names)


def made(
    policies: tuple[Keys, ...], revisions: tuple[Revision, ...], numbers: tuple[int, ...], who: Verdict, code: int
) -> "Proof | None":
    """Return what requests of `code` prove from now on, after the check has admitted one of `who`.

    It holds while `revisions` have the `numbers` that they had before the check: users change in another thread.  A
    request with a token proves that it has the same token, until that ends.
    None with pure Python, for other codes, and if several policies decide.
    """
    if _engine is None or code not in NAMES_OF or len(policies) != 1:
        return None
    proof: Proof
    token = who.token
    if token is not None:
        # The loop's own thread ends tokens: this one has not ended since the check.
        ends, now = (*revisions, token.revision), (*numbers, token.revision.number)
        proof = _engine.Proof(_engine.SigningKey(token.text, "", True), MAX_NAMES, ends, now)
        return proof
    secret_key = policies[0].secret_key(who.account)
    if secret_key is None:
        return None
    proof = _engine.Proof(_engine.SigningKey(who.account, secret_key), MAX_NAMES, revisions, numbers)
    return proof
