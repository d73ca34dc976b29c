"""Stores of a group's offsets: on the brokers (clustering) or in a file (broadcasting).

Source: RocketMQ 5.3.3, `RemoteBrokerOffsetStore`, `LocalFileOffsetStore`, `OffsetSerializeWrapper`.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import ClientError
from sprocket.client.send_result import queue_name
from sprocket.common.errors import ProtocolError
from sprocket.common.files.atomic_file import read_file_or_backup, replace_file
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class OffsetStore(Protocol):
    """Committed offsets of one group."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the committed offset, None if there is none.  Raises ClientError if it cannot be read."""

    async def persist(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Commit `offsets`.  Return the queues that succeeded; the next call retries the others."""


class RemoteBrokerOffsetStore:
    """Offsets on the brokers: at the masters, and at a slave while there is no master."""

    def __init__(self, instance: ClientInstance, group: str, *, is_strict: bool = False) -> None:
        """Without `is_strict` a broker answers 0 for a new group if the queue's first message is still in memory.

        So a new group of a new topic misses no message that arrived before its first pull.
        """
        self._instance = instance
        self._group = group
        self._set_zero_if_not_found = False if is_strict else None

    async def read(self, queue: MessageQueue) -> int | None:
        instance = self._instance
        if instance.master_address(instance.broker_name_of(queue)) is None:
            await instance.refresh_route(queue.topic)
        response = await instance.invoke_for(
            queue,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequestHeader(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                set_zero_if_not_found=self._set_zero_if_not_found,
                broker_name=queue.broker_name,
            ),
            timeout_s=_TIMEOUT_S,
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        instance.expect_success(response, instance.broker_name_of(queue))
        return header_of(response, QueryConsumerOffsetResponseHeader).offset

    async def persist(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        outcomes = await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))
        return {queue for queue, is_kept in zip(offsets, outcomes, strict=True) if is_kept}

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        instance = self._instance
        try:
            response = await instance.invoke_for(
                queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S
            )
            instance.expect_success(response, instance.broker_name_of(queue))
        except ClientError as error:
            # All queues of a broker fail together, so log once for each broker.
            if instance.outages.failed(("commit", instance.broker_name_of(queue)), error):
                logger.warning(
                    "event=commit_failed group=%s queue=%s offset=%d reason=%r",
                    self._group, queue_name(queue), offset, str(error),
                )  # fmt: skip
            return False
        broker_name = instance.broker_name_of(queue)
        over = instance.outages.succeeded(("commit", broker_name))
        if over is not None:
            logger.info(
                "event=commit_recovered group=%s broker=%s after_s=%.1f failures=%d",
                self._group, broker_name, *over,
            )  # fmt: skip
        return True


class _OffsetFile(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] = {}


class _OffsetTable(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, int]


class LocalFileOffsetStore:
    """Offsets in ``<directory>/<client id>/<group>/offsets.json``, in the format of the Java client."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self._path = directory / client_id / group / "offsets.json"
        self._offsets: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()  # all writes go through one temporary file
        self._changes = self._written = 0

    async def read(self, queue: MessageQueue) -> int | None:
        return (await self._load()).get(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        table = await self._load()
        table.update(offsets)
        self._changes += 1
        wanted = self._changes
        async with self._writing:
            changes = self._changes
            if self._written < wanted:  # else the write before had these offsets too
                try:
                    await asyncio.to_thread(replace_file, self._path, dumps(_OffsetTable(dict(table))))
                except OSError as error:
                    logger.warning("event=commit_failed path=%s reason=%r", self._path, str(error))
                    return set()
                self._written = changes
        return set(offsets)

    async def _load(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            try:
                content = await asyncio.to_thread(read_file_or_backup, self._path)
                table = loads(content, _OffsetFile).offset_table if content else {}
                self._offsets = {loads(key.encode(), MessageQueue): offset for key, offset in table.items()}
            except (OSError, ProtocolError) as error:
                raise ClientError(f"{self._path} holds no offsets: {error}; repair or remove it") from None
        return self._offsets
