"""Wait for the log's flush, as periodic writers of tables and the end of a role do."""

import asyncio

from sprocket.common.errors import StoreError
from store.message_store import MessageStore


async def log_flushed(store: MessageStore) -> StoreError | None:
    """Wait until the log is on the disk as far as it reaches now; return the error if it never will be."""
    flushed: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
    store.when_flushed(store.wrote_offset, flushed.set_result)
    return await flushed
