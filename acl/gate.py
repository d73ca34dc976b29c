"""Gate of a port: every request passes it before any of it is served.

It decodes a frame, asks each policy, and passes on what it decoded, so that what is served is what was checked.  A
refused request is answered, counted, and written to the audit log.  A wrong signature also counts against its address.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from acl.access_request import AccessRequest, FailedAttempt, NameFilter, Verdict
from acl.audit_log import AuditLog, without_tokens
from acl.auth.model import Action as AuthAction
from acl.auth.requests import FILTERED, of_message
from acl.failed_attempts import FailedAttempts
from acl.gate_settings import GateSettings
from acl.passes import admit, covers, made
from acl.remote_addresses import Parts, parts_of
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.common.revision import Revision
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request
from sprocket.remoting.credentials import ACCESS_KEY
from sprocket.remoting.framing import Frame
from sprocket.remoting.refusals import Refusal, refusal_of
from sprocket.remoting.routes import Action, AllFields, Decoded, Resource, RouteTable, UnroutableRequest, open_frame

logger = logging.getLogger(__name__)

# Addresses whose parts are cached.
_MAX_PEERS: Final = 4096
# Attributes of a connection: the account of its last signed request, the whole verdict about it, and what its last
# request without a needed signature names.
PROVEN_ACCOUNT: Final = "proven_account"
_PROVEN: Final = "proven"
_UNSIGNED: Final = "unsigned"
# Stands for a request that needed no signature.
NOBODY: Final = Verdict("")
_NO_KIND: Final = (Action.NONE, Resource.NONE)
# Their resources are known only after the message is read: their handlers check again.
RECHECKED: Final = frozenset(
    {
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.END_TRANSACTION,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)


class Policy(Protocol):
    """Policy of who may do what."""

    def check(self, asked: AccessRequest, /) -> Verdict | None:
        """Return what was proved, if a proof was needed.

        Raises RequestError if the request is refused; its subclass `FailedAttempt` for a wrong signature.
        """

    def check_right(self, who: Verdict, asked: AccessRequest, /) -> None:
        """Raise RequestError unless `who` has been proved before, and still may do what `asked` needs."""

    def shown(self, access_key: str, /) -> tuple[str, str]:
        """Return what a log may show of an access key: the account, and the id of its token."""

    def visible(self, who: Verdict, asked: AccessRequest, /) -> NameFilter | None:
        """Return which names an admitted list shows `who`; None: all."""

    @property
    def revision(self) -> Revision:
        """What rises whenever an account or a permission changes."""

    def secret_key(self, account: str, /) -> str | None:
        """Return the secret key of an account that may sign; None without one."""


class TooManyFailures(RequestError):
    """The request was not checked: its address has sent too many wrong signatures."""

    refusal_reason = Reason.LOCKED_OUT


def _nobody(asked: AccessRequest) -> bool:
    return False


def _anybody(channel: RemotingChannel, account: str) -> None:
    pass


class Gate:
    """Gate of one port.  It belongs to the event loop's thread.

    A request passes if every one of `policies` admits it.  `is_white` selects requests that failures never lock out.
    `refused_code` is the response code of requests that are locked out.  `on_signed` is called when another account
    than before signs on a connection; it raises RequestError to refuse that.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        settings: GateSettings,
        clock: Clock,
        *,
        cluster: str = "",
        is_white: Callable[[AccessRequest], bool] = _nobody,
        refused_code: int = ResponseCode.NO_PERMISSION,
        self_checked: Mapping[int, str] | None = None,
        on_signed: Callable[[RemotingChannel, str], None] = _anybody,
    ) -> None:
        self._on_signed = on_signed
        self._revision = Revision()
        self._set_policies(tuple(policies))
        self.audit = AuditLog(settings, clock, self._shown)
        self.refused = 0
        self.locked_out = 0
        # Codes whose handlers check the caller's proof, and its field: these come before any signature.
        self.self_checked = {} if self_checked is None else self_checked
        self._attempts = FailedAttempts(settings.auth_failures_per_second, settings.auth_failures_burst)
        self._clock = clock
        self.cluster = cluster
        self._is_white = is_white
        self._refused_code = refused_code
        self._peers: dict[str, Parts | None] = {}

    def replace_policies(self, policies: Sequence[Policy]) -> None:
        """Apply the policies of changed accounts.  Passes of the old ones end."""
        if self._policies != tuple(policies):
            self._set_policies(tuple(policies))
            self._revision.rise()

    def _set_policies(self, policies: tuple[Policy, ...]) -> None:
        self._policies = policies
        self._revisions = (self._revision, *(policy.revision for policy in policies))

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all that decisions depend on; each change changes one."""
        return tuple([revision.number for revision in self._revisions])

    def stand_before(self, table: RouteTable) -> RouteTable:
        """Return the routes of `table` behind this gate."""
        return table.behind(Doorway(self, table).admit)

    def _shown(self, access_key: str) -> tuple[str, str]:
        return self._policies[-1].shown(access_key) if self._policies else without_tokens(access_key)

    def admitted(self, asked: AccessRequest, request: Request[Any]) -> Verdict | None:
        """Return who signed `asked`, `NOBODY` if no signature was needed; None if a policy refuses it.

        A refusal is answered, counted and logged.
        """
        channel: RemotingChannel = request.channel
        try:
            if self.self_checked.get(asked.code) in asked.fields:
                self._check_failures(asked)
                return NOBODY
            who = self.check(asked, channel)
        except RequestError as error:
            self._refuse(asked, request, error)
            return None
        except Exception as error:
            # If the check itself fails, the request is not served.
            peer_lines.error(
                logger, channel.peer, "event=check_failed code=%d peer=%s:%d", asked.code, *channel.peer, exc_info=error
            )
            self._refuse(asked, request, RequestError(self._refused_code, "the request could not be checked"))
            return None
        if self.audit.writes_allowed:
            self.audit.allowed(asked, channel.peer)
        return who or NOBODY

    def check(self, asked: AccessRequest, channel: RemotingChannel) -> Verdict | None:
        """Return who signed `asked`, None if it needed no signature.  Raise RequestError if refused."""
        if not self._policies:
            reason = "no request is served before the accounts are read"
            raise RequestError(self._refused_code, reason, Reason.ACCESS_DENIED)
        attributes = channel.attributes
        proven: Verdict | None = attributes.get(_PROVEN)
        name = asked.fields.get(ACCESS_KEY)
        if name is not None and (proven is None or name != proven.access_key):
            self._check_failures(asked)
        who: Verdict | None = None
        for policy in self._policies:
            try:
                verdict = policy.check(asked)
            except FailedAttempt:
                if asked.is_attempt:
                    self._attempts.failed(asked.peer, self._clock.monotonic())
                raise
            except ProtocolError as error:
                detail = f"What the request is about cannot be told: {error}"
                raise RequestError(self._refused_code, detail, Reason.ACCESS_DENIED) from None
            if verdict is None:
                unsigned: AccessRequest | None = attributes.get(_UNSIGNED)
                if unsigned is None or unsigned.access_key != name:
                    named = {} if name is None else {ACCESS_KEY: name}
                    attributes[_UNSIGNED] = AccessRequest(0, 0, asked.peer, named, b"", cluster=self.cluster)
                continue
            who = verdict
            if proven != who:
                self._on_signed(channel, who.account)
                attributes[PROVEN_ACCOUNT], attributes[_PROVEN] = who.account, who
                channel.proofs.clear()  # they are of the account that has signed last, and so is the next
                channel.charged = None
                if proven is not None and proven.token is not None:
                    proven.token.bearers.discard(channel)
                if who.token is not None:
                    who.token.bearers.add(channel)  # its end ends the connection
        return who

    def give_pass(
        self, channel: RemotingChannel, who: Verdict, request: Request[Any], numbers: tuple[int, ...]
    ) -> None:
        """Let further requests like `request`, which `who` signed, pass without the whole check.

        `numbers` are those before its check.
        """
        # With these settings each request leaves a line, or is checked by its handler.
        if self.audit.writes_allowed or request.code in self.self_checked:
            return
        code = request.code
        proof = channel.proof_of(code) or made(self._policies, self._revisions, numbers, who, code)
        if proof is not None:
            channel.proofs[code] = proof
            admit(proof, request)

    def proof_failed(self, request: Request[Any]) -> None:
        """Count a wrong proof for a code in `self_checked` like a wrong signature."""
        self.refused += 1
        parts = self.parts(request.channel.peer[0])
        self._attempts.failed(parts, self._clock.monotonic())
        asked = AccessRequest(request.code, request.version, parts, {}, b"", cluster=self.cluster)
        self.audit.refused(asked, request.channel.peer, "the proof of a broker's identity is wrong")

    def allows(self, channel: RemotingChannel, topic: str, action: AuthAction) -> bool:
        """Return whether the account that signed on `channel` may do `action` on messages of `topic` sent to it."""
        if channel.is_trusted:
            return True  # it asks itself
        who: Verdict | None = channel.attributes.get(_PROVEN)
        if who is None:
            # Check each time: the white list may have changed since the request was admitted.
            unsigned = channel.attributes.get(_UNSIGNED)
            return unsigned is not None and self._is_white(unsigned)
        needed = of_message(topic, action, self.cluster)
        asked = AccessRequest(0, 0, self.parts(channel.peer[0]), {}, b"", cluster=self.cluster, found=needed)
        try:
            for policy in self._policies:
                policy.check_right(who, asked)
        except RequestError:
            return False
        return True

    def visible(self, who: Verdict, asked: AccessRequest) -> NameFilter | None:
        """Return which names an admitted list shows `who`; None: all."""
        filters = [policy.visible(who, asked) for policy in self._policies]
        found = [shows for shows in filters if shows is not None]
        return (lambda name: all(shows(name) for shows in found)) if found else None

    def _check_failures(self, asked: AccessRequest) -> None:
        """Refuse, unchecked, an address that failed too often, except on connections that have signed before."""
        if self._attempts.is_locked(asked.peer, self._clock.monotonic()) and not self._is_white(asked):
            self.locked_out += 1
            raise TooManyFailures(self._refused_code, "too many wrong signatures from this address, try again later")

    def _refuse(self, asked: AccessRequest, request: Request[Any], error: RequestError) -> None:
        self.refused += 1
        self.audit.refused(asked, request.channel.peer, error.remark)
        reason = error.refusal_reason or Reason.ACCESS_DENIED
        request.channel.reply(request, Refusal(error.code, error.remark, error.fields, reason=reason))

    def refuse_late(self, asked: AccessRequest, peer: tuple[str, int], error: RequestError) -> None:
        """Count and log a refusal that a handler sends."""
        self.refused += 1
        self.audit.refused(asked, peer, error.remark)

    def parts(self, address: str) -> Parts | None:
        """Return the parts of a peer's address; None if it is none."""
        if address not in self._peers:
            if len(self._peers) >= _MAX_PEERS:
                self._peers.clear()
            self._peers[address] = parts_of(address)
        return self._peers[address]


class Doorway:
    """Way through a gate to one table: opens each frame once, and decodes it for `table` after the gate admitted it."""

    __slots__ = ("_gate", "_kinds", "_table")

    def __init__(self, gate: Gate, table: RouteTable) -> None:
        self._gate = gate
        self._table = table
        self._kinds = {int(route.code): (route.action, route.resource) for route in table.routes}

    def admit(self, frame: Frame, channel: RemotingChannel) -> Decoded | None:
        """Return what of `frame` may be served; None after a refusal was sent.  Raises ProtocolError."""
        decoded = self._by_pass(frame, channel)
        try:
            return self._checked(frame, channel) if decoded is None else decoded
        except UnroutableRequest as error:
            channel.reply(error.request, refusal_of(error))
            return None

    def _by_pass(self, frame: Frame, channel: RemotingChannel) -> Decoded | None:
        """Return the request of a frame that the connection has a pass for; None for all others."""
        entry = self._table.entry_of(frame) if channel.proofs else None
        proof = None if entry is None else channel.proof_of(entry.code)
        if entry is None or entry.native is None or proof is None:
            return None
        request = entry.native.signed_request(frame[0], frame[1], frame[2], channel, proof.key)
        return (entry, request) if request is not None and covers(proof, request) else None

    def _checked(self, frame: Frame, channel: RemotingChannel) -> Decoded | None:
        opened = open_frame(frame)
        if isinstance(opened, ReceivedResponse):
            return opened
        request, fields = opened
        request.channel = channel
        action, resource = self._kinds.get(request.code, _NO_KIND)
        asked = AccessRequest(
            request.code, request.version, self._gate.parts(channel.peer[0]), fields, frame[2], action, resource,
            self._gate.cluster, channel.certificate_name,
        )  # fmt: skip
        numbers = self._gate.numbers()
        who = self._gate.admitted(asked, request)
        if who is None:
            return None
        decoded = self._table.routed(request, fields)
        if asked.code in RECHECKED or (who is not NOBODY and asked.code in FILTERED):
            request.access = Access(self._gate, asked, who)
        elif who is not NOBODY and decoded[0].header is not AllFields:  # a pass is for names in typed headers
            self._gate.give_pass(channel, who, request, numbers)
        return decoded


class Access:
    """Second check for a handler, once it knows the request's resources; `who` is `NOBODY` without a signature."""

    __slots__ = ("_asked", "_gate", "_who")

    def __init__(self, gate: Gate, asked: AccessRequest, who: Verdict) -> None:
        self._gate = gate
        self._asked = asked
        self._who = who

    def visible(self) -> NameFilter | None:
        """Return which names a list shows the caller; None: all."""
        return None if self._who is NOBODY else self._gate.visible(self._who, self._asked)

    def require(self, channel: RemotingChannel, topic: str, action: AuthAction, group: str | None) -> None:
        """Raise RequestError unless the caller may also do `action` on messages of `topic`, as a member of `group`."""
        was = self._asked
        asked = AccessRequest(
            was.code, was.version, was.peer, was.fields, was.body, was.action, was.resource, was.cluster,
            was.certificate_name, of_message(topic, action, was.cluster, group),
        )  # fmt: skip
        try:
            self._gate.check(asked, channel)
        except RequestError as error:
            self._gate.refuse_late(asked, channel.peer, error)
            raise


def require_topic(request: Request[Any], topic: str, action: AuthAction, group: str | None = None) -> None:
    """Raise RequestError unless the sender of `request` may do `action` on messages of `topic`.

    For handlers of the codes in `RECHECKED`, once they have read the message.  `group` is the consumer group of the
    request, whose own retry topics it may read.  Without a gate everything is allowed.
    """
    if isinstance(request.access, Access):
        request.access.require(request.channel, topic, action, group)
