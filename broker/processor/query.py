"""QUERY_MESSAGE by key and VIEW_MESSAGE_BY_ID by physical offset.

Source: RocketMQ 5.3.3, `QueryMessageProcessor`.
"""

import asyncio
from typing import Final

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.core import BrokerCore
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Answer, Resource, Route, Traffic
from store.index.message_query import MessageQuery, verified_record
from store.record.record import Record, decode
from store.tier.object_store import ObjectStoreError

# A query finds messages that were sent right before it: max wait for the index, s.
_CATCH_UP_S: Final = 0.5


class QueryProcessor:
    """Handler of both requests.  One search at a time runs, in a thread, so that a long one delays only queries."""

    def __init__(self, core: BrokerCore) -> None:
        self._tier = core.tier
        self._config = core.config
        self._store = core.store
        self._searching = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader, self.query, Resource.TOPIC, Action.GET
            ),
            Route(
                RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, self.view, Resource.TOPIC, Action.GET,
                Traffic.ADMIN,
            ),
        ]  # fmt: skip

    async def query(self, request: Request[QueryMessageRequestHeader]) -> Response:
        """Return the messages with a key, concatenated, oldest first.

        Keys are compared by hash, so the client must compare the keys, as RocketMQ's do.  Topics are compared by name;
        RocketMQ does not do that.
        """
        header, store = request.header, self._store
        max_num = self._config.store.default_query_max_num if header.is_unique_key == "true" else header.max_num
        await self._index_caught_up()
        query = MessageQuery(
            store.index,
            store.record_at,
            header.topic,
            header.key,
            max_num,
            header.begin_timestamp,
            header.end_timestamp,
        )
        async with self._searching:
            while query.is_open:
                query.take(await asyncio.to_thread(query.search))
        reached = QueryMessageResponseHeader(
            index_last_update_timestamp=query.last_update_timestamp,
            index_last_update_phyoffset=query.last_update_physical_offset,
        )
        # Two topics may have the same hash, but permission to read one does not include the other.
        found = [*await self._archived(header, max_num - len(query.records), bool(query.records)), *query.records]
        records = [record for record in found if _topic(record) == header.topic]
        if not records:
            remark = "can not find message, maybe time range not correct"
            return Response(ResponseCode.QUERY_NOT_FOUND, remark, header=reached)
        return Response(header=reached, body=records)

    async def _archived(self, header: QueryMessageRequestHeader, most: int, has_others: bool) -> list[memoryview]:
        """Return what only the object store has, up to `most` messages.

        Raises an `ObjectStoreError` if it does not answer, unless the response has other messages.
        """
        if most <= 0 or not self._tier.is_on:
            return []
        begin, end, before = header.begin_timestamp, header.end_timestamp, self._store.first_physical_offset
        try:
            return await self._tier.records_of_key(header.topic, header.key, begin, end, before, most)
        except ObjectStoreError:
            if not has_others:
                raise
            return []

    async def _index_caught_up(self) -> None:
        """Wait until the index has all messages that are confirmed now, but at most `_CATCH_UP_S`."""
        index, confirmed = self._store.index, self._store.confirm_offset
        if not index.is_enabled or index.reached_offset >= confirmed:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            if not reached.done():
                reached.set_result(None)

        index.when_indexed(confirmed, answer)
        try:
            await asyncio.wait_for(reached, _CATCH_UP_S)
        except TimeoutError:
            index.forget(answer)

    def view(self, request: Request[ViewMessageRequestHeader]) -> Answer:
        """Return the record at a physical offset."""
        offset = request.header.offset
        if self._tier.is_on and 0 <= offset < self._store.first_physical_offset:
            return self._view_archived(request)
        return _viewed(request, verified_record(self._store.record_at, offset))

    async def _view_archived(self, request: Request[ViewMessageRequestHeader]) -> Response:
        return _viewed(request, await self._tier.record_at(request.header.offset))


def _viewed(request: Request[ViewMessageRequestHeader], record: memoryview | None) -> Response:
    if record is None:
        remark = f"can not find message by the offset, {request.header.offset}"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    require_topic(request, _topic(record), AuthAction.GET)
    return Response(body=record)


def _topic(record: memoryview) -> str:
    decoded = decode(record, check_crc=False)
    return decoded.topic if isinstance(decoded, Record) else ""
