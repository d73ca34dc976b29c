"""What requests about users and policies need: the cluster, or the namespace that they stay within.

A user whose name begins with a namespace, ``shop|orders%alice``, belongs to it.  Who has the right to update a
namespace manages its users, and decides what they may do there.  A policy that goes beyond it needs the cluster.
Sprocket adds this: in RocketMQ only those with rights on the cluster manage users.
"""

from collections.abc import Iterator
from typing import Final

from acl.access_request import ANY_NAMESPACE, AccessRequest, Needed
from acl.auth.errors import AuthRefused
from acl.auth.infos import acl_of
from acl.auth.model import Action, Resource, ResourcePattern, ResourceType, Subject
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.auth import AclInfo
from sprocket.remoting.codec.body_limits import SETTINGS
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.namespaces import namespace_of

_GET: Final = (Action.GET,)
_LIST: Final = (Action.GET, Action.LIST)
_UPDATE: Final = (Action.UPDATE,)
_READS: Final = frozenset({RequestCode.AUTH_GET_USER, RequestCode.AUTH_GET_ACL})
_LISTS: Final = frozenset({RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL})
_WRITTEN_ACLS: Final = frozenset({RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL})
ACCOUNT_CODES: Final = (
    RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER, *_READS, *_LISTS,
    *_WRITTEN_ACLS, RequestCode.AUTH_DELETE_ACL,
)  # fmt: skip


def account_needs(asked: AccessRequest) -> Iterator[Needed]:
    """Yield what a request about users or policies needs."""
    if asked.code in _LISTS:
        yield Needed(asked.cluster_resource, _LIST, ANY_NAMESPACE)
        return
    actions = _GET if asked.code in _READS else _UPDATE
    for namespace in dict.fromkeys(_namespaces(asked)):
        instead = Resource(ResourceType.NAMESPACE, namespace) if namespace else None
        yield Needed(asked.cluster_resource, actions, instead)


def _namespaces(asked: AccessRequest) -> Iterator[str]:
    """Yield the namespaces of the users and resources that a request names; the empty text for what is in none."""
    fields = asked.fields
    if asked.code in _WRITTEN_ACLS:
        yield from _written(asked.body, fields.get("subject"))
    elif "subject" in fields:
        subject = Subject.parse(fields["subject"])
        yield namespace_of(subject.name) if subject else ""
    else:
        yield namespace_of(fields.get("username", ""))


def _written(body: bytes, subject: str | None) -> Iterator[str]:
    try:
        acl = acl_of(loads(bytes(body or b"{}"), AclInfo, SETTINGS), subject)
    except (AuthRefused, ProtocolError):
        yield ""  # the handler tells those who may write any acl what is wrong with it
        return
    yield namespace_of(acl.subject.name)
    for policy in acl.policies:
        for entry in policy.entries:
            yield _within(entry.resource)


def _within(resource: Resource) -> str:
    """Return the namespace beyond which a resource of a policy does not reach; the empty text if there is none."""
    if resource.resource_type in (ResourceType.TOPIC, ResourceType.GROUP):
        return namespace_of(resource.name or "")
    is_one = resource.resource_type is ResourceType.NAMESPACE and resource.pattern is ResourcePattern.LITERAL
    return (resource.name or "") if is_one else ""
