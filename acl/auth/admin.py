"""Management of users and policies: mqadmin's createUser to copyUser and createAcl to copyAcl.

Source of codes, checks and texts: RocketMQ 5.3.3, `AdminBrokerProcessor.createUser` and those beside it.  Sprocket
differs.  Only super users who signed are told passwords.  A request that a white list admits without a signature does
not count as one of a super user.  An unreadable request changes nothing (in RocketMQ an unreadable resource deletes a
whole acl).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from acl.auth.errors import AuthRefused
from acl.auth.infos import acl_info, acl_of, policy_type_of, resource_of, user_info, user_status_of, user_type_of
from acl.auth.model import Subject, User, UserStatus, UserType
from acl.auth.policy import AuthPolicy
from acl.auth.tables import AuthTables
from acl.tokens.revocations import Revocation
from acl.visible_names import visible_names
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.common.next_turn import to_its_end
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.auth import AclInfo, UserInfo
from sprocket.remoting.codec.body_limits import SETTINGS
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    RevokeTokenRequestHeader,
    UserRequestHeader,
)
from sprocket.remoting.headers.base import Header
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Handler, Resource, Route

T = TypeVar("T")
_MAX_NAME_CHARS: Final = 256
# An expired token may be accepted for this time: the largest tokenAllowedClockSkewSeconds.
_MAX_SKEW_S: Final = 300
_BLANK: Final = "The username is blank"
_CREATED_BY_SUPER: Final = "The super user can only be create by super user"
_UPDATED_BY_SUPER: Final = "The super user can only be update by super user"
NOT_CONFIGURED: Final = "The authenticationMetadataProvider is not configured: set authenticationEnabled = true"


class AuthAdminProcessor:
    """Handler of requests about users and policies.  It belongs to the event loop's thread; changes run in another.

    If no user is required `policy` is None, and nobody is told a password.  Unless `is_served`, every request is
    refused: otherwise users that strangers create today would be valid once users are required.
    """

    def __init__(self, tables: AuthTables, policy: AuthPolicy | None, clock: Clock, *, is_served: bool) -> None:
        self._clock = clock
        self._tables = tables
        self._policy = policy
        self._is_served = is_served
        self._changing = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, update, get = RequestCode, Action.UPDATE, Action.GET
        return [
            self._route(code.AUTH_CREATE_USER, UserRequestHeader, self.create_user, update),
            self._route(code.AUTH_UPDATE_USER, UserRequestHeader, self.update_user, update),
            self._route(code.AUTH_DELETE_USER, UserRequestHeader, self.delete_user, update),
            self._route(code.AUTH_GET_USER, UserRequestHeader, self.get_user, get),
            self._route(code.AUTH_LIST_USER, ListUsersRequestHeader, self.list_users, get),
            self._route(code.AUTH_CREATE_ACL, AclRequestHeader, self.put_acl, update),
            self._route(code.AUTH_UPDATE_ACL, AclRequestHeader, self.put_acl, update),
            self._route(code.AUTH_DELETE_ACL, DeleteAclRequestHeader, self.delete_acl, update),
            self._route(code.AUTH_GET_ACL, AclRequestHeader, self.get_acl, get),
            self._route(code.AUTH_LIST_ACL, ListAclsRequestHeader, self.list_acls, get),
            self._route(code.REVOKE_TOKEN, RevokeTokenRequestHeader, self.revoke_token, update),
        ]

    def _route(self, code: RequestCode, header: type[Header], handle: Handler, action: Action) -> Route:
        return Route(code, header, handle if self._is_served else _not_configured, Resource.CLUSTER, action)

    # Users

    async def create_user(self, request: Request[UserRequestHeader]) -> Response:
        """Add a user.  Only a super user may add a super user."""
        name = _name(request.header)
        info = _body(request, UserInfo)
        user_type = user_type_of(info) or UserType.NORMAL
        user = User(name, info.password or "", user_type, user_status_of(info) or UserStatus.ENABLE)
        if user.is_super and not self._is_asked_by_super(request):
            raise RequestError(ResponseCode.SYSTEM_ERROR, _CREATED_BY_SUPER)
        return await self._change(lambda: self._tables.create_user(user))

    async def update_user(self, request: Request[UserRequestHeader]) -> Response:
        """Change the fields of a user that the body gives.  Only a super user may change a super user."""
        name = _name(request.header)
        info = _body(request, UserInfo)
        user_type = user_type_of(info)
        if user_type is UserType.SUPER and not self._is_asked_by_super(request):
            raise RequestError(ResponseCode.SYSTEM_ERROR, _UPDATED_BY_SUPER)
        self._demand_right_over(name, request)
        status = user_status_of(info)
        return await self._change(lambda: self._tables.update_user(name, info.password, user_type, status))

    async def delete_user(self, request: Request[UserRequestHeader]) -> Response:
        """Remove a user and its acl.  Only a super user may remove a super user."""
        name = request.header.username or ""
        self._demand_right_over(name, request)
        return await self._change(lambda: self._tables.delete_user(name))

    def get_user(self, request: Request[UserRequestHeader]) -> Response:
        """Return a user; no body if it does not exist."""
        name = request.header.username or ""
        if not name.strip():
            raise RequestError(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._tables.user(name)
        if user is None:
            return Response()
        return Response(body=dumps(user_info(user, with_password=self._tells_passwords(request))))

    def list_users(self, request: Request[ListUsersRequestHeader]) -> Response:
        """Return the users whose names contain the filter; no body if there are none."""
        shows = visible_names(request)
        users = [user for user in self._tables.list_users(request.header.filter) if not shows or shows(user.username)]
        tells = self._tells_passwords(request)
        return Response(body=dumps([user_info(user, with_password=tells) for user in users]) if users else b"")

    async def _change(self, change: Callable[[], None]) -> Response:
        """Make one change after the other, in a thread: it waits for the disk."""

        async def run() -> None:
            async with self._changing:
                await asyncio.to_thread(change)

        await to_its_end(run())
        return Response()

    def _demand_right_over(self, name: str, request: Request[UserRequestHeader]) -> None:
        user = self._tables.user(name)
        if user is not None and user.is_super and not self._is_asked_by_super(request):
            raise AuthRefused(_UPDATED_BY_SUPER)

    def _is_asked_by_super(self, request: Request[UserRequestHeader]) -> bool:
        """Return whether a super user asks.  If no user is required, a request without a user counts as one."""
        name = request.header.access_key
        if self._policy is None:
            user = self._tables.user(name) if name else None
            return not name or (user is not None and user.is_super)
        return self._policy.is_signed_by_super(request.code, name)

    def _tells_passwords(self, request: Request[UserRequestHeader] | Request[ListUsersRequestHeader]) -> bool:
        return self._policy is not None and self._policy.is_signed_by_super(request.code, request.header.access_key)

    # Acls

    async def put_acl(self, request: Request[AclRequestHeader]) -> Response:
        """Replace the policies for the same resources; keep all others."""
        info = _body(request, AclInfo)
        if not info.policies:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        acl = acl_of(info, request.header.subject)
        return await self._change(lambda: self._tables.update_acl(acl))

    async def delete_acl(self, request: Request[DeleteAclRequestHeader]) -> Response:
        """Remove a resource from a subject's policy of one type; without a resource remove the subject's acl."""
        header = request.header
        named = header.resource is not None and header.resource.strip()
        resource = resource_of(header.resource) if named else None
        subject, policy_type = _subject(header.subject), policy_type_of(header.policy_type)
        return await self._change(lambda: self._tables.delete_acl(subject, policy_type, resource))

    def get_acl(self, request: Request[AclRequestHeader]) -> Response:
        """Return the acl of a subject; no body if it has none."""
        acl = self._tables.acl(_subject(request.header.subject))
        return Response(body=b"" if acl is None else dumps(acl_info(acl)))

    def list_acls(self, request: Request[ListAclsRequestHeader]) -> Response:
        """Return the acls that match the filters; no body if none does."""
        shows, header = visible_names(request), request.header
        found = self._tables.list_acls(header.subject_filter, header.resource_filter)
        acls = [acl for acl in found if not shows or shows(acl.subject.name)]
        return Response(body=dumps([acl_info(acl) for acl in acls]) if acls else b"")

    # Tokens

    async def revoke_token(self, request: Request[RevokeTokenRequestHeader]) -> Response:
        """Revoke one token, or all that a user has."""
        header, now_s = request.header, self._clock.wall_ms() / 1000
        named = [name for name in (header.token_id, header.username) if name]
        if len(named) != 1 or len(named[0]) > _MAX_NAME_CHARS:
            text = f"name either the token's id or its user, with at most {_MAX_NAME_CHARS} characters"
            raise RequestError(ResponseCode.INVALID_PARAMETER, text)
        if header.token_id:
            until_s = None if header.expires_at is None else header.expires_at + _MAX_SKEW_S
            one = Revocation(token_id=header.token_id, until_s=until_s)
        else:
            one = Revocation(user=header.username, before_s=now_s)
        return await self._change(lambda: self._tables.revoke(one, now_s))


def _not_configured(_: object) -> Response:
    return Refusal(ResponseCode.SYSTEM_ERROR, NOT_CONFIGURED, reason=Reason.TURNED_OFF)


def _name(header: UserRequestHeader) -> str:
    if not header.username:
        raise RequestError(ResponseCode.INVALID_PARAMETER, _BLANK)
    return header.username


def _subject(key: str | None) -> Subject:
    subject = Subject.parse(key)
    if subject is None:
        raise AuthRefused("The subject is null.")
    return subject


def _body(request: Request[Any], kind: type[T]) -> T:
    try:
        return loads(bytes(request.body or b"{}"), kind, SETTINGS)
    except ProtocolError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The body cannot be read: {error.detail}") from None
