"""Request as access control sees it: the account that it names, and what it asks for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from acl.auth.model import Action as AuthAction
from acl.auth.model import Resource, ResourceType
from acl.remote_addresses import Parts
from acl.tokens.verified_token import VerifiedToken
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE
from sprocket.remoting.message.properties import INNER_MULTI_DISPATCH, NAME_END, TIMER_DEL_UNIQKEY, VALUE_END
from sprocket.remoting.routes import Action
from sprocket.remoting.routes import Resource as RouteResource


class FailedAttempt(RequestError):
    """The caller proved no identity: there is no such account, or the signature is wrong."""

    refusal_reason = Reason.WRONG_SIGNATURE


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Proof that `account` signed a request, or presented `token`."""

    account: str
    token: VerifiedToken | None = None

    @property
    def access_key(self) -> str:
        """What the requests of this account name."""
        return self.account if self.token is None else self.token.text


# Some namespace, whichever it is.
ANY_NAMESPACE: Final = Resource(ResourceType.NAMESPACE, None)
# Returns whether a list shows a name.
NameFilter = Callable[[str], bool]


class Needed(msgspec.Struct, frozen=True):
    """One permission that a request needs in ACL 2.0: one of `actions` must be allowed on `resource`.

    The same permission on `instead` is enough, too.  With `ANY_NAMESPACE` there, the response has only the names
    in namespaces on which the caller has it.
    """

    resource: Resource
    actions: tuple[AuthAction, ...]
    instead: Resource | None = None

    @property
    def name(self) -> str:
        """Return the resource as refusals name it: ``Topic:orders``; without a name all of its type."""
        resource = self.resource
        return resource.key if resource.name is not None else f"{resource.resource_type.value}:*"

    @property
    def key(self) -> str:
        """Return the text for audit lines: ``Topic:orders=Pub``."""
        return f"{self.name}={'|'.join(one.value for one in self.actions)}"


class AccessRequest(msgspec.Struct, frozen=True, gc=False):
    """One request.  Nothing in it is proved yet.

    `action` and `resource` are those of its route.  `cluster` is the server's cluster; empty: none, or all.  If a
    handler has set `found`, which permissions the request needs, only those are checked.  `proved_user` is whom a token
    or a certificate has proved, if its permissions are asked for.  The garbage collector does not track it: nothing it
    refers to refers back.
    """

    code: int
    version: int
    peer: Parts | None
    fields: Mapping[str, str]
    body: bytes
    action: Action = Action.NONE
    resource: RouteResource = RouteResource.NONE
    cluster: str = ""
    certificate_name: str | None = None
    found: tuple[Needed, ...] = ()
    proved_user: str | None = None

    @property
    def access_key(self) -> str | None:
        """Account that the request names."""
        return self.fields.get(ACCESS_KEY)

    @property
    def user(self) -> str:
        """User whose request it is; empty for nobody."""
        return self.proved_user or self.access_key or ""

    @property
    def signature(self) -> str | None:
        """Signature that must prove the account."""
        return self.fields.get(SIGNATURE)

    @property
    def cluster_resource(self) -> Resource:
        """The server's cluster as a resource; without a name, it matches only entries for all clusters."""
        return Resource(ResourceType.CLUSTER, self.cluster or None)

    @property
    def is_attempt(self) -> bool:
        """Whether it tries to prove an identity.  A request without an account has guessed no key."""
        return self.access_key is not None

    @property
    def sent_to(self) -> str | None:
        """Topic in the header, by the name that it has there."""
        return self.fields.get("b" if self.code in SHORT_NAMES else "topic")

    def carried_topics(self) -> list[str]:
        """Return the topics that the message reaches besides its own."""
        fields, is_short = self.fields, self.code in SHORT_NAMES
        is_batch = fields.get("m" if is_short else "batch", "false") != "false"
        return _named_topics(fields.get("i" if is_short else "properties"), self.body if is_batch else b"")


# Codes whose header has one-letter names.
SHORT_NAMES: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def _named_topics(properties: str | None, batch: bytes) -> list[str]:
    """Return the topics named by `properties` and by the messages in `batch`; usually none.

    ``INNER_MULTI_DISPATCH`` names light queues that also get the record; ``TIMER_DEL_UNIQKEY`` names a delayed message
    to delete.  Every value of every occurrence counts: whichever of them a store uses, permission was asked for it.
    Source: RocketMQ 5.3.3, `LmqDispatch`, `TimerMessageStore.buildDeleteKey`; see `store.queue.multi_dispatch`.
    """
    found: list[str] = []
    if properties and (INNER_MULTI_DISPATCH in properties or TIMER_DEL_UNIQKEY in properties):
        found += _topics_in(properties)
    if batch and (INNER_MULTI_DISPATCH.encode() in batch or TIMER_DEL_UNIQKEY.encode() in batch):
        found += _topics_in(java_text(batch))
    return found


def _topics_in(text: str) -> Iterator[str]:
    for name in (INNER_MULTI_DISPATCH, TIMER_DEL_UNIQKEY):
        for piece in text.split(name + NAME_END)[1:]:
            value = piece.partition(VALUE_END)[0].encode("utf-8", "replace").decode()
            if name == INNER_MULTI_DISPATCH:
                yield from (queue for queue in value.split(",") if queue)
            else:
                # A value without a topic means the message's own topic.
                topic, plus, _ = value.rpartition("+")
                if plus:
                    yield topic
