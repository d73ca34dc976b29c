"""A slave that a test drives byte by byte: it takes what its master sends, and says what it is told to say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from ha.protocol import TransferReader, report


class FakeSlave:
    """One connection to a master's HA port, of RocketMQ's two messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._transfers = TransferReader()
        self._log = bytearray()
        # Where its log ends with what the master has sent.
        self.received_offset = 0
        self.is_closed = False
        # While it is not set nothing is read.
        self.may_read = asyncio.Event()
        self.may_read.set()
        # Acknowledge whatever comes at once.
        self.is_eager = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, port: int, address: str = "127.0.0.1") -> Self:
        """From an address of this machine: slaves of different addresses are different ones."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                await self.may_read.wait()
                for transfer in self._transfers.feed(data):
                    self._log += transfer.content
                    self.received_offset = transfer.from_offset + len(transfer.content)
                if self.is_eager:
                    self.report()
        except ConnectionError:
            pass
        self.is_closed = True

    def write(self, data: bytes) -> None:
        """Any bytes."""
        self._writer.write(data)

    def report(self, offset: int | None = None) -> None:
        """Report the end of its log: after the received bytes, unless told otherwise."""
        self.write(report(self.received_offset if offset is None else offset))

    async def close(self) -> None:
        """Disappear."""
        self._task.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def fake_slave(port: int, *, log_end: int | None = 0, address: str = "127.0.0.1") -> AsyncIterator[FakeSlave]:
    """A slave whose log ends at `log_end`; with None it says nothing yet."""
    slave = await FakeSlave.connect(port, address)
    if log_end is not None:
        slave.report(log_end)
    try:
        yield slave
    finally:
        await slave.close()
