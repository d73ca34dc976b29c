"""What a request needs in ACL 1.0: an admin, or permissions.

The rules are those of ACL 2.0 (`auth_requests`): PUB of a topic for publishing, SUB of topic and group for everything
else that names them.  What changes topics, groups or the broker, and what names no topic or group, needs an admin; so
does a code that no route serves.  Stricter than RocketMQ 5.3.2, `PlainAccessResource.parse`: a code that is not listed
there needs a signature and nothing more.
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

# NONE is the action of a code that no route serves.
_ADMIN_ACTIONS: Final = frozenset({Action.NONE, Action.CREATE, Action.UPDATE, Action.DELETE})


def needs(asked: AccessRequest) -> dict[str, Permission] | None:
    """Return the permissions that a request needs, or None if only an admin may ask for it.

    Topics have their names, groups those of their retry topics.  Raises ProtocolError if the body cannot be decoded.
    """
    if not asked.found and (asked.action in _ADMIN_ACTIONS or asked.code in ADMIN_CODES):
        return None
    if asked.code == RequestCode.VIEW_MESSAGE_BY_ID and not asked.found and not asked.sent_to:
        # Clients before 5.0 name no topic.  The handler asks again for the topic that the message has.
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
    """The resource that stands for a group."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group
