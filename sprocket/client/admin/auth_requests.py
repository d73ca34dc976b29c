"""Part of the administration client: users and policies of single brokers, given by address.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl.createUser` and those beside it, `DefaultMQAdminExtImpl`.
"""

import msgspec

from sprocket.client.admin.admin_requests import AdminError, AdminRequests, decoded
from sprocket.remoting.bodies.auth import AclInfo, PlainAccountsBody, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    RevokeTokenRequestHeader,
    UserRequestHeader,
)


class AclChange(msgspec.Struct, frozen=True):
    """One policy for each of `resources`, as `mqadmin createAcl` and `updateAcl` take it."""

    subject: str
    resources: tuple[str, ...]
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str

    @property
    def info(self) -> AclInfo:
        """Return the form on the wire."""
        source_ips = list(self.source_ips) or None
        entries = [PolicyEntryInfo(one, list(self.actions), source_ips, self.decision) for one in self.resources]
        return AclInfo(self.subject, [PolicyInfo(None, entries)])


class AuthRequests(AdminRequests):
    """What `AdminClient` asks about users and policies.  Every method raises AdminError."""

    async def create_user(self, broker: str, user: UserInfo) -> None:
        """Add a user."""
        header = UserRequestHeader(username=user.username)
        await self.ask(broker, RequestCode.AUTH_CREATE_USER, header, dumps(user))

    async def update_user(self, broker: str, user: UserInfo) -> None:
        """Change the given properties of a user."""
        header = UserRequestHeader(username=user.username)
        await self.ask(broker, RequestCode.AUTH_UPDATE_USER, header, dumps(user))

    async def delete_user(self, broker: str, username: str) -> None:
        """Remove a user and its ACL."""
        await self.ask(broker, RequestCode.AUTH_DELETE_USER, UserRequestHeader(username=username))

    async def user(self, broker: str, username: str | None) -> UserInfo | None:
        """Return a user, with its password if a super user asks; None if there is none."""
        header = UserRequestHeader(username=username)
        response = await self.ask(broker, RequestCode.AUTH_GET_USER, header)
        return decoded(response, UserInfo) if response.body else None

    async def users(self, broker: str, filter_: str | None = None) -> list[UserInfo]:
        """Return the users whose names contain the filter."""
        header = ListUsersRequestHeader(filter=filter_)
        response = await self.ask(broker, RequestCode.AUTH_LIST_USER, header)
        return decoded(response, list[UserInfo]) if response.body else []

    async def revoke_token(
        self, broker: str, *, token_id: str | None = None, username: str | None = None, expires_at: int | None = None
    ) -> None:
        """Revoke the token with an id (jti), or all that a user got until now.

        `expires_at` is when that token expires, s since the epoch; without it, the revocation never ends.
        """
        header = RevokeTokenRequestHeader(token_id=token_id, username=username, expires_at=expires_at)
        await self.ask(broker, RequestCode.REVOKE_TOKEN, header)

    async def create_acl(self, broker: str, acl: AclInfo) -> None:
        """Add policies for a subject; they replace its policies for the same resources."""
        header = AclRequestHeader(subject=acl.subject)
        await self.ask(broker, RequestCode.AUTH_CREATE_ACL, header, dumps(acl))

    async def update_acl(self, broker: str, acl: AclInfo) -> None:
        """Do the same as `create_acl`."""
        header = AclRequestHeader(subject=acl.subject)
        await self.ask(broker, RequestCode.AUTH_UPDATE_ACL, header, dumps(acl))

    async def delete_acl(self, broker: str, subject: str, resource: str | None = None) -> None:
        """Remove a subject's custom policy for a resource; without a resource its whole ACL."""
        header = DeleteAclRequestHeader(subject=subject, resource=resource)
        await self.ask(broker, RequestCode.AUTH_DELETE_ACL, header)

    async def acl(self, broker: str, subject: str | None) -> AclInfo | None:
        """Return the ACL of a subject; None if it has none."""
        header = AclRequestHeader(subject=subject)
        response = await self.ask(broker, RequestCode.AUTH_GET_ACL, header)
        return decoded(response, AclInfo) if response.body else None

    async def acls(self, broker: str, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """Return the ACLs whose subjects and resources contain these texts."""
        header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
        response = await self.ask(broker, RequestCode.AUTH_LIST_ACL, header)
        return decoded(response, list[AclInfo]) if response.body else []

    # ACL 1.0

    async def plain_accounts(self, broker: str) -> PlainAccountsBody:
        """Return the accounts of ACL 1.0, without secret keys.  A broker without `aclEnable` refuses."""
        return await self.ask_body(broker, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, PlainAccountsBody)

    # From one broker to another

    async def copy_users(self, source: str, target: str, usernames: list[str] | None = None) -> list[str]:
        """Copy users of `source`, all or those named, to `target`.  Return their names.  Needs a super user."""
        if usernames:
            users = [one for name in usernames if (one := await self.user(source, name)) is not None]
        else:
            users = await self.users(source)
        if any(user.password is None for user in users):
            raise AdminError(f"{source} tells no passwords: sign as one of its super users, with authenticationEnabled")
        for user in users:
            is_there = await self.user(target, user.username) is not None
            await (self.update_user(target, user) if is_there else self.create_user(target, user))
        return [user.username or "" for user in users]

    async def copy_acls(self, source: str, target: str, subjects: list[str] | None = None) -> list[str]:
        """Copy the ACLs of `source`, or of the subjects named, to `target`.  Return the subjects."""
        if subjects:
            acls = [one for subject in subjects if (one := await self.acl(source, subject)) is not None]
        else:
            acls = await self.acls(source)
        for acl in acls:
            await self.update_acl(target, acl)
        return [acl.subject or "" for acl in acls]
