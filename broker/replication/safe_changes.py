"""Changes of replicated tables: with SYNC_MASTER they are answered when the slaves have them.

A record follows the change in the log.  Slaves in a session get changed tables before that record (`EarlyTables`), so
one that acknowledges the record has the change.  If no Sprocket slave is in sync, nobody waits, and the remark says
so.  RocketMQ's masters never wait for slaves with a table.  Its slaves, in no session, ask for tables later.
They acknowledge the record without the table, so beside one the change may be answered before any slave has it.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from broker.core import BrokerCore
from sprocket.common.errors import DiskFull, RequestError, StoreBusy
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.message.topic_names import SELF_TEST_TOPIC
from sprocket.remoting.routes import Handler, Result, Route
from store.record.record import PendingMessage

_CHANGED: Final = b"a table has changed"
_ALONE: Final = "the change is at this broker alone so far: no Sprocket slave is in sync"
# Requests that change a table which slaves have.
CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.SET_QUOTA, RequestCode.DELETE_QUOTA,
        RequestCode.SET_NAMESPACE, RequestCode.DELETE_NAMESPACE, RequestCode.SET_SCHEDULE, RequestCode.DELETE_SCHEDULE,
        RequestCode.PAUSE_SCHEDULE, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL, RequestCode.REVOKE_TOKEN,
    }
)  # fmt: skip


class SafeChanges:
    """Rule for the answers to changes of tables.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.count = 0  # changes that slaves must have before the next record

    def awaited(self, routes: Iterable[Route], has_sessions: Callable[[], bool]) -> list[Route]:
        """Return `routes`; those that change a table also wait for slaves, if sends do and slaves are in sessions."""
        is_for_slaves = self._core.waits.is_for_slaves
        return [
            replace(route, handle=self._around(route.handle, has_sessions))
            if is_for_slaves and route.code in CHANGES and route.handle is not None
            else route
            for route in routes
        ]

    def _around(self, handle: Handler, has_sessions: Callable[[], bool]) -> Handler:
        async def safe(request: Request[Any]) -> Result:
            answer = handle(request)
            response = await answer if inspect.isawaitable(answer) else answer
            if isinstance(response, Response) and response.code == ResponseCode.SUCCESS:
                remark = await self._at_slaves() if has_sessions() else _ALONE
                response.remark = response.remark or remark
            return response

        return safe

    async def _at_slaves(self) -> str | None:
        """Wait until the slaves in sync have all tables as they are now; return why nobody waits for them.

        Raises StoreError, and RequestError after the timeout.
        """
        core = self._core
        if not core.role.serves_group or core.config.store.read_only_from:
            return None  # its log takes nothing
        self.count += 1
        try:
            code = await core.waits.outcome(self.note())
        except (DiskFull, StoreBusy) as error:  # a full disk must not prevent that topics are deleted
            return f"slaves have the change soon, at the latest when the log takes records again: {error}"
        if code == ResponseCode.SLAVE_NOT_AVAILABLE:
            return _ALONE
        if code != ResponseCode.SUCCESS:
            raise RequestError(code, "the change is made at this broker, but perhaps at no slave; make it again")
        return None

    def note(self) -> int:
        """Append the record that follows a change, and return where it ends in the log.  Raises StoreError."""
        now_ms, store = self._core.clock.wall_ms(), self._core.store
        [(_, physical_offset, size_bytes)] = store.append(
            [PendingMessage(SELF_TEST_TOPIC, 0, _CHANGED, b"", 0, 0, 0, now_ms, store.store_host)]
        )
        return physical_offset + size_bytes
