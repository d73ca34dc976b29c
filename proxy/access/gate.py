"""Gate before the methods: who signed a call, and whether that user may do what it asks for.

Users and policies are those of ACL 2.0, in the file of a broker; the policy is the same as on the remoting port.
The signature of a call is HMAC-SHA1 over its date and time, in hexadecimal (``MQv2-HMAC-SHA1``).  As in RocketMQ, a
signature holds for any call of its second or later: use TLS, so that nobody can read it.
A token comes as ``authorization: Bearer ...``, or where a signed call names its user, as RocketMQ's clients send it.
Source: RocketMQ 5.3.3, `DefaultAuthenticationContextBuilder`, `AuthenticationPipeline`, `AuthorizationPipeline`.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from acl.access_request import AccessRequest, FailedAttempt, Verdict
from acl.audit_log import AuditLog
from acl.auth.model import UserStatus
from acl.auth.policy import AuthPolicy
from acl.auth.tables import AuthTables
from acl.failed_attempts import FailedAttempts
from acl.gate_settings import GateSettings
from acl.remote_addresses import parts_of
from acl.tokens.token_text import is_token
from acl.tokens.verified_token import Bearer
from proxy.access.needs import needs
from proxy.server.call import Call
from proxy.status import Refusal
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.metadata import AUTHORIZATION, DATE_TIME
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import ACCESS_KEY

logger = logging.getLogger(__name__)

# Checked for an unknown user, so that the answer takes as long.
_NO_KEY: Final = "no user has this password"
_MAX_PROVEN: Final = 16_384
_CREDENTIAL: Final = "Credential"
_SIGNATURE: Final = "Signature"
_BEARER: Final = "bearer"


class GrpcGate:
    """Gate of one proxy.  `check_client` gets a client id and who uses it, and raises Refusal if it is another's."""

    def __init__(
        self,
        policy: AuthPolicy,
        settings: GateSettings,
        tables: AuthTables,
        clock: Clock,
        cluster: str,
        check_client: Callable[[str, str], object],
    ) -> None:
        self._check_client = check_client
        self._tables = tables
        self._policy = policy
        self._audit = AuditLog(settings, clock, policy.shown)
        self._attempts = FailedAttempts(settings.auth_failures_per_second, settings.auth_failures_burst)
        self._clock = clock
        self._cluster = cluster
        # Connections on which a user has signed: wrong signatures of others at their address do not lock them out.
        self._proven: set[tuple[tuple[str, int], str | bytes]] = set()
        self.refused = 0

    def prove(self, call: Call, request_name: str) -> str:
        """Return the account of who calls.  Raises Refusal unless the caller has signed, or presents a token."""
        peer = parts_of(call.peer[0])
        name = None
        try:
            name, signature = signed_by(call.metadata)
            connection = (call.peer, hashlib.sha256(name.encode()).digest() if is_token(name) else name)
            if connection not in self._proven and self._attempts.is_locked(peer, self._clock.monotonic()):
                raise Refusal(wire.UNAUTHORIZED, "too many wrong signatures from this address, try again later")
            try:
                account = self._demand_proof(name, signature, call.metadata.get(DATE_TIME, ""))
            except RequestError as error:
                if isinstance(error, FailedAttempt):
                    self._attempts.failed(peer, self._clock.monotonic())
                raise Refusal(wire.UNAUTHORIZED, error.remark) from None
            self._remember(connection)
            return account
        except Refusal as refused:
            self._refused(call, name, f"{request_name}: {refused.message}")
            raise

    def bind(self, call: Call, bearer: Bearer) -> None:
        """Let what serves a call end with the token of who calls, if one proves who it is.  Raises Refusal."""
        name, _ = signed_by(call.metadata)
        token = self._who(name).token
        if token is not None:
            token.bearers.add(bearer)

    def permit(self, call: Call, request: Any) -> str:
        """Return the user who signed.  Raises Refusal unless that user may ask for this, and as this client."""
        peer = parts_of(call.peer[0])
        name, _ = signed_by(call.metadata)
        try:
            who = self._who(name)
            for needed in needs(request):
                asked = AccessRequest(0, 0, peer, {ACCESS_KEY: name}, b"", cluster=self._cluster, found=(needed,))
                self._check(who, asked)
            self._check_client(call.client_id, who.account)
            return who.account
        except Refusal as refused:
            self._refused(call, name, f"{type(request).__name__}: {refused.message}")
            raise

    def _refused(self, call: Call, name: str | None, reason: str) -> None:
        self.refused += 1
        fields = {} if name is None else {ACCESS_KEY: name}
        asked = AccessRequest(0, 0, parts_of(call.peer[0]), fields, b"", cluster=self._cluster)
        self._audit.refused(asked, call.peer, reason)

    def _who(self, name: str) -> Verdict:
        """Return who has proved itself as `name`, a user or a token."""
        if is_token(name):
            try:
                return self._policy.verify(name)
            except RequestError as error:
                raise Refusal(wire.UNAUTHORIZED, error.remark) from None
        user = self._tables.user(name)
        if user is None or user.user_status is UserStatus.DISABLE:
            raise Refusal(wire.UNAUTHORIZED, f"User:{name} is disabled.")
        return Verdict(name)

    def _remember(self, connection: tuple[tuple[str, int], str | bytes]) -> None:
        if connection not in self._proven:
            if len(self._proven) >= _MAX_PROVEN:
                self._proven.clear()
            self._proven.add(connection)

    def _check(self, who: Verdict, asked: AccessRequest) -> None:
        try:
            self._policy.check_right(who, asked)
        except RequestError as error:
            raise Refusal(wire.UNAUTHORIZED, error.remark) from None

    def _demand_proof(self, name: str, signature: str, date_time: str) -> str:
        if is_token(name):
            return self._policy.verify(name).account
        user = self._tables.user(name)
        password = _NO_KEY if user is None else user.password
        expected = hmac.new(password.encode(), date_time.encode(), hashlib.sha1).hexdigest()
        is_equal = hmac.compare_digest(expected.encode(), signature.lower().encode("utf-8", "replace"))
        if not is_equal or user is None:
            raise FailedAttempt(ResponseCode.NO_PERMISSION, "check signature failed.")
        return name


def signed_by(metadata: Mapping[str, str]) -> tuple[str, str]:
    """Return the user that a call names and its signature, or its token.  Raises Refusal."""
    text = metadata.get(AUTHORIZATION, "")
    if not text:
        raise Refusal(wire.UNAUTHORIZED, "username cannot be null.")
    scheme, separator, listed = text.partition(" ")
    if scheme.lower() == _BEARER:
        if not is_token(listed):
            raise Refusal(wire.UNAUTHORIZED, "the bearer token is no JSON Web Token.")
        return listed, ""
    if not metadata.get(DATE_TIME):
        raise Refusal(wire.UNAUTHORIZED, "datetime is null.")
    if not separator:
        raise Refusal(wire.UNAUTHORIZED, "authentication header is incorrect.")
    found: dict[str, str] = {}
    for entry in listed.split(","):
        key, equals, value = entry.strip().partition("=")
        if not equals:
            raise Refusal(wire.UNAUTHORIZED, "authentication keyValues length is incorrect, actual length=1.")
        found[key] = value
    name = found.get(_CREDENTIAL, "").split("/")[0]
    if not name:
        raise Refusal(wire.UNAUTHORIZED, "username cannot be null.")
    return name, found.get(_SIGNATURE, "")
