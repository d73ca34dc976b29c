"""Decision about requests by the accounts of ACL 1.0.

The order: the global white list, the account's white list, the signature, admin codes, permissions; an explicit
permission comes before the default.  Source: RocketMQ 5.3.2, `PlainPermissionManager.validate`,
`PlainPermissionChecker`.
"""

import hmac
import logging
from collections.abc import Mapping
from typing import Final

from acl.access_request import AccessRequest, FailedAttempt, NameFilter, Verdict
from acl.audit_log import without_tokens
from acl.grants import Grants, grant
from acl.plain.accounts import Account, AccountFile
from acl.plain.permission import Permission
from acl.plain.requests import needs
from acl.remote_addresses import RemoteAddresses
from acl.tokens.token_text import masked
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.common.revision import Revision
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE, signature
from sprocket.remoting.message.topic_names import RETRY_PREFIX, TRACE_TOPIC

logger = logging.getLogger(__name__)

# RocketMQ's text begins like this: tools and people search for it.
_REFUSED: Final = "org.apache.rocketmq.acl.common.AclException: "
# Checked for an unknown account, so that the response takes as long.
_NO_KEY: Final = "no account has this key"


class AccessDenied(RequestError):
    """Refusal; the text names the rule, never a key."""

    refusal_reason = Reason.ACCESS_DENIED

    def __init__(self, why: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, _REFUSED + why)


class NotProved(AccessDenied, FailedAttempt):
    """The caller has not proved to be the account that it names."""

    refusal_reason = Reason.WRONG_SIGNATURE


class PlainPolicy:
    """Accounts of all files.  If several files have an account, the first one counts."""

    def __init__(self, files: Mapping[str, AccountFile]) -> None:
        self._white: list[RemoteAddresses] = [file.white for file in files.values() if file.white]
        self._accounts: dict[str, Account] = {}
        # Grants are never forgotten: changed files make a new policy.
        self._grants = Grants()
        self.revision = Revision()  # never rises, for the same reason
        for name, file in files.items():
            for account in file.accounts:
                if account.access_key in self._accounts:
                    logger.warning("event=account_repeated access_key=%s file=%s", account.access_key, name)
                else:
                    self._accounts[account.access_key] = account

    @property
    def account_count(self) -> int:
        """Number of accounts."""
        return len(self._accounts)

    @property
    def secrets(self) -> list[tuple[str, str]]:
        """Return names and secret keys of all accounts."""
        return [(account.access_key, account.secret_key) for account in self._accounts.values()]

    def secret_key(self, account: str) -> str | None:
        """Return the secret key of an account; None without one."""
        found = self._accounts.get(account)
        return None if found is None else found.secret_key

    def is_white(self, request: AccessRequest) -> bool:
        """Return whether it comes from a white address, and needs no signature."""
        if self._white and any(white.match(request.peer) for white in self._white):
            return True
        account = self._accounts.get(request.access_key or "")
        return account is not None and account.white.match(request.peer)

    def check(self, request: AccessRequest) -> Verdict | None:
        """Return what was proved, if a proof was needed.  Raises AccessDenied for a refused request."""
        if self.is_white(request):
            return None
        fields = request.fields
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise NotProved("No accessKey is configured")
        account = self._accounts.get(access_key)
        expected = signature(_NO_KEY if account is None else account.secret_key, fields, request.body, request.version)
        given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
        is_signed = hmac.compare_digest(expected.encode(), given)
        if account is None:
            raise NotProved(f"No acl config for {masked(access_key)}")
        if not is_signed:
            raise NotProved(f"Check signature failed for accessKey={access_key}")
        if not account.is_admin:
            wanted = grant(access_key, request)
            if wanted not in self._grants:
                _check_permissions(account, request)
                self._grants.remember(wanted)
        return Verdict(access_key)

    def visible(self, who: Verdict, request: AccessRequest) -> NameFilter | None:
        """Return None: an account that may list sees all names."""
        return None

    def shown(self, access_key: str) -> tuple[str, str]:
        """Return what a log may show of an access key."""
        return without_tokens(access_key)

    def check_right(self, who: Verdict, request: AccessRequest) -> None:
        """Raise AccessDenied unless the account, which has signed before, may do what `request` needs."""
        account = self._accounts.get(who.account)
        if account is None:
            raise AccessDenied(f"No acl config for {who.account}")
        if not account.is_admin:
            _check_permissions(account, request)


def _check_permissions(account: Account, request: AccessRequest) -> None:
    try:
        needed = needs(request)
    except ProtocolError as error:
        raise AccessDenied(f"What the request is about cannot be told: {error}") from None
    if needed is None:
        detail = f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
        raise AccessDenied(detail)
    if needed.get(TRACE_TOPIC) is Permission.PUB:
        del needed[TRACE_TOPIC]  # everybody may publish to it
    for resource, permission in needed.items():
        is_group = resource.startswith(RETRY_PREFIX)
        owned = account.permissions.get(resource)
        if owned is None:
            if not (account.default_group if is_group else account.default_topic).allows(permission):
                raise AccessDenied(f"No default permission for {_shown(resource, is_group)}")
        elif not owned.allows(permission):
            raise AccessDenied(f"No permission for {_shown(resource, is_group)}")


def _shown(resource: str, is_group: bool) -> str:
    return f"group:{resource[len(RETRY_PREFIX) :]}" if is_group else f"topic:{resource}"
