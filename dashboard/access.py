"""Who asks the cluster for a page: a visitor who logged in, or nobody where the cluster has no access control.

Without a login every request goes out unsigned, so a cluster with access control refuses it by itself.  A login is
checked by a request that is signed as the user, and only by brokers that refuse the same request unsigned: a broker
without access control would believe any name.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from acl.failed_attempts import FailedAttempts
from acl.remote_addresses import parts_of
from dashboard.asking.links import LinkLook
from dashboard.security.sessions import Session, Sessions
from dashboard.settings import DashboardSettings
from sprocket.client.admin.admin_client import AdminClient, AdminDenied, AdminError
from sprocket.client.admin.at_once import AtOnce, answered
from sprocket.common.clock import Clock
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.credentials import Credentials

logger = logging.getLogger(__name__)

_MAX_NAME_CHARACTERS: Final = 128
_MAX_SECRET_CHARACTERS: Final = 1024
# All addresses together: far below what a broker takes before it locks this machine out (authFailuresBurst).
_ALL_BURST: Final = 30
_CHECK_INTERVAL_S: Final = 10.0


# Refusals of a caller that has proved its identity and lacks a right.
# Source of the texts: RocketMQ 5.3.3, `PlainPermissionManager.checkPerm`, `AuthorizationProvider`; our own in `acl/`.
_LACKS_A_RIGHT: Final = (
    "has no permission to access",
    "Need admin permission",
    "No default permission",
    "No permission for",
)


def is_proved(remark: str) -> bool:
    """Return whether a refusal says that the signature was right and only a permission is missing."""
    return any(text in remark for text in _LACKS_A_RIGHT)


@dataclass(frozen=True)
class Held:
    """What a session holds: the user's client, the user's credentials for producers, and looks at links."""

    admin: AdminClient
    credentials: Credentials | None
    links: LinkLook


class LoginRefused(Exception):
    """The visitor is not logged in; the text says why."""


class Access:
    """Sessions, the client of visitors without a login, and whether the cluster has access control."""

    def __init__(
        self, settings: DashboardSettings, clock: Clock, new_id: Callable[[], str], at_once: AtOnce,
        later: Callable[[AdminClient], None],
    ) -> None:  # fmt: skip
        """`later` closes the client of a session that ended."""
        self._settings = settings
        self._clock = clock
        self._at_once = at_once
        self._close_later = later
        self.unsigned = self._held(None)
        self._sessions: Sessions[Held] = Sessions(
            new_id,
            self._end,
            max_sessions=settings.max_sessions,
            idle_s=settings.session_idle_s,
            limit_s=settings.session_limit_s,
        )
        self._attempts = FailedAttempts(settings.logins_per_s, settings.logins_burst)
        self._all_attempts = FailedAttempts(settings.logins_per_s * 2, _ALL_BURST)
        self._is_guarded = False
        self._checked_s: float | None = None

    def _held(self, credentials: Credentials | None) -> Held:
        settings = self._settings
        admin = AdminClient(
            settings.name_servers, timeout_s=settings.request_timeout_s, credentials=credentials, tls=settings.tls
        )
        return Held(admin, credentials, LinkLook(settings, credentials, self._clock))

    def _end(self, held: Held) -> None:
        held.links.stop()
        self._close_later(held.admin)

    async def start(self) -> None:
        """Raises TlsUnusable."""
        await self.unsigned.admin.__aenter__()

    async def stop(self) -> None:
        """End all sessions."""
        self._sessions.end_all()
        self.unsigned.links.stop()
        await self.unsigned.admin.__aexit__(None, None, None)

    @property
    def session_count(self) -> int:
        """Number of visitors who are logged in."""
        self._sessions.expire(self._clock.monotonic())
        return len(self._sessions)

    def session(self, id_: str) -> Session[Held] | None:
        """Return the session of a cookie."""
        return self._sessions.find(id_, self._clock.monotonic())

    def log_out(self, id_: str) -> None:
        """End the session of a cookie."""
        self._sessions.end(id_)

    async def needs_login(self) -> bool:
        """Return whether a broker of the cluster refuses unsigned requests.  Once it did, the answer stays yes."""
        now = self._clock.monotonic()
        if not self._is_guarded and (self._checked_s is None or now - self._checked_s >= _CHECK_INTERVAL_S):
            self._checked_s = now
            try:
                self._is_guarded = bool(await self._guarded_brokers())
            except AdminDenied:
                self._is_guarded = True
            except AdminError:
                self._checked_s = None  # nobody answered; the page says so, and the next one asks again
        return self._is_guarded

    def refused_unsigned(self) -> None:
        """Record that access control refused an unsigned request: from now on, visitors must log in."""
        self._is_guarded = True

    async def log_in(self, user: str, secret: str, peer: str) -> Session[Held]:
        """Return a new session of a user of the cluster.  Raises LoginRefused, AdminError."""
        now = self._clock.monotonic()
        address = parts_of(peer)
        if self._attempts.is_locked(address, now) or self._all_attempts.is_locked(None, now):
            raise LoginRefused("Too many logins. Wait a minute, then try again.")
        # Blanks in a name could imitate the text of a refusal, from which `is_proved` reads.
        if not user or len(user) > _MAX_NAME_CHARACTERS or not user.isprintable() or " " in user:
            raise LoginRefused("This is no user name: it is empty, too long, or has blanks in it.")
        if not secret or len(secret) > _MAX_SECRET_CHARACTERS:
            raise LoginRefused("The password is empty or too long.")
        # Count the attempt before it is checked, so that many at once do not pass.
        self._attempts.failed(address, now)
        self._all_attempts.failed(None, now)
        held = self._held(Credentials(user, secret))
        try:
            await held.admin.__aenter__()
            is_user = await self._is_user(held.admin)
        except BaseException:
            self._end(held)
            raise
        if not is_user:
            self._end(held)
            peer_lines.warning(logger, peer, "event=login_refused user=%r peer=%s", user, peer)
            raise LoginRefused("No broker accepts this user name and password.")
        peer_lines.info(logger, peer, "event=login user=%r peer=%s", user, peer)
        return self._sessions.begin(user, held, now)

    async def _is_user(self, client: AdminClient) -> bool:
        try:
            brokers = await self._guarded_brokers()
        except AdminDenied:
            # The name server refuses unsigned requests, so its answer to a signed one is a proof.
            return await self._is_user_of_name_server(client)
        if not brokers:
            raise LoginRefused("No broker with access control answers now. Check that the brokers run.")
        self._is_guarded = True
        # One broker after another: a wrong password must not count as many failures.
        for broker in brokers:
            try:
                await client.broker_runtime_info(broker)
            except AdminDenied as error:
                return is_proved(error.remark or "")
            except AdminError:
                continue
            return True
        raise LoginRefused("No broker with access control answers now. Check that the brokers run.")

    async def _is_user_of_name_server(self, client: AdminClient) -> bool:
        self._is_guarded = True
        try:
            await client.cluster_info()
        except AdminDenied as error:
            return is_proved(error.remark or "")
        return True

    async def _guarded_brokers(self) -> list[str]:
        """Return the brokers that refuse an unsigned request.  Raises AdminError if no server answers."""
        info = await self.unsigned.admin.cluster_info()
        addresses = [address for data in info.broker_addr_table.values() for address in data.broker_addrs.values()]
        outcomes = await self._at_once.each(addresses, self.unsigned.admin.broker_runtime_info)
        guarded = [address for address, outcome in outcomes.items() if isinstance(outcome, AdminDenied)]
        if addresses and not guarded and not answered(outcomes):
            raise AdminError("no broker answers")
        return guarded
