"""What a request asks for, as far as access control goes: who says to have sent it, and what it says."""

from collections.abc import Mapping
from typing import Final

import msgspec

from acl.auth.model import Action as AuthAction
from acl.auth.model import Resource
from acl.carried_topics import carried_topics
from acl.remote_addresses import Parts
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE
from sprocket.remoting.routes import Action
from sprocket.remoting.routes import Resource as RouteResource


class FailedAttempt(RequestError):
    """Whoever asks has proved nothing: no such account, or a wrong signature."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """That a request was signed by `account`."""

    account: str


class Needed(msgspec.Struct, frozen=True):
    """One thing that a request needs in ACL 2.0: one of `actions` has to be allowed with `resource`."""

    resource: Resource
    actions: tuple[AuthAction, ...]

    @property
    def name(self) -> str:
        """Which resource, as refusals tell it: ``Topic:orders``; one without a name is all of its type."""
        resource = self.resource
        return resource.key if resource.name is not None else f"{resource.resource_type.value}:*"

    @property
    def key(self) -> str:
        """As audit lines show it: ``Topic:orders=Pub``."""
        return f"{self.name}={'|'.join(one.value for one in self.actions)}"


class AccessRequest(msgspec.Struct, frozen=True, gc=False):
    """One request, of which nothing is believed yet.

    `action` and `resource` are those of its route, `cluster` is the one that the server belongs to (empty: to none,
    or to all).  `found` is what a handler found out that the request is about: where it has something, that is asked
    for and nothing else.  The collector does not follow it: what it refers to refers to nothing back.
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

    @property
    def access_key(self) -> str | None:
        """The account that it names."""
        return self.fields.get(ACCESS_KEY)

    @property
    def signature(self) -> str | None:
        """What is to prove it."""
        return self.fields.get(SIGNATURE)

    @property
    def is_attempt(self) -> bool:
        """Whether it tries to prove something: who names no account has guessed no key."""
        return self.access_key is not None

    @property
    def sent_to(self) -> str | None:
        """The topic that the header names, by the name that it has there."""
        return self.fields.get("b" if self.code in SHORT_NAMES else "topic")

    def carried_topics(self) -> list[str]:
        """Topics that a message reaches beside the one that it is sent to."""
        fields, is_short = self.fields, self.code in SHORT_NAMES
        is_batch = fields.get("m" if is_short else "batch", "false") != "false"
        return carried_topics(fields.get("i" if is_short else "properties"), self.body if is_batch else b"")


# Codes whose header has one letter for each name.
SHORT_NAMES: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
