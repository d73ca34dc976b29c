"""Headers of requests about users and policies.

Source: RocketMQ 5.3.3, `CreateUserRequestHeader` and its neighbours: nothing is required there.  `access_key` is who
says to ask, as every signed request has it.
"""

import msgspec

from sprocket.remoting.credentials import ACCESS_KEY
from sprocket.remoting.headers.base import Header


class UserRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str | None = None
    access_key: str | None = msgspec.field(name=ACCESS_KEY, default=None)


class ListUsersRequestHeader(Header, kw_only=True):
    """AUTH_LIST_USER: those whose names contain `filter`."""

    filter: str | None = None
    access_key: str | None = msgspec.field(name=ACCESS_KEY, default=None)


class RevokeTokenRequestHeader(Header, kw_only=True):
    """REVOKE_TOKEN: the token with this id (jti), or all that `username` got until now.

    `expires_at` is when the token expires, s since the epoch; without it, the revocation never ends.
    """

    token_id: str | None = None
    username: str | None = None
    expires_at: int | None = None


class AclRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_ACL: all of a subject, or what the policy of a type says of one resource."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """AUTH_LIST_ACL: subjects and resources whose names contain these."""

    subject_filter: str | None = None
    resource_filter: str | None = None
