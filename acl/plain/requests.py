"""Permissions that a request needs in ACL 1.0, or an admin.

The rules follow ACL 2.0 (`acl.auth.requests`): PUB of a topic to publish; SUB of topic and group for all other requests
that name them.  An admin is needed to change topics, groups or the broker, for a request that names no topic or group,
and for a code without a route.  Stricter than RocketMQ 5.3.2, `PlainAccessResource.parse`: there an unlisted code needs
only a signature.

A file of its own, as the counterpart of `acl.auth.requests`.
"""

from typing import Final

from acl.access_request import AccessRequest
from acl.auth.model import Action as AuthAction
from acl.auth.model import ResourceType
from acl.auth.requests import required
from acl.plain.permission import ADMIN_CODES, Permission
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from sprocket.remoting.routes import Action

# NONE is the action of a code without a route.
_ADMIN_ACTIONS: Final = frozenset({Action.NONE, Action.CREATE, Action.UPDATE, Action.DELETE})


def needs(asked: AccessRequest) -> dict[str, Permission] | None:
    """Return the permissions that a request needs, or None if only an admin may ask for it.

    Topics are named by themselves, groups by their retry topics.  Raises ProtocolError if the body cannot be decoded.
    """
    if not asked.found and (asked.action in _ADMIN_ACTIONS or asked.code in ADMIN_CODES):
        return None
    if asked.code == RequestCode.VIEW_MESSAGE_BY_ID and not asked.found and not asked.sent_to:
        # Clients before 5.0 name no topic.  The handler checks again, for the topic of the message.
        return {}
    permissions: dict[str, Permission] = {}
    for one in required(asked):
        resource_type, name = one.resource.resource_type, one.resource.name or ""
        if resource_type is ResourceType.GROUP:
            permissions[retry_topic(name)] = Permission.SUB
        elif resource_type is ResourceType.TOPIC:
            permissions[name] = _of_topic(one.actions)
        else:
            return None
    return permissions


def _of_topic(actions: tuple[AuthAction, ...]) -> Permission:
    if AuthAction.PUB not in actions:
        return Permission.SUB
    return Permission.ANY if AuthAction.SUB in actions else Permission.PUB


def retry_topic(group: str) -> str:
    """Return the resource of a group."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group
