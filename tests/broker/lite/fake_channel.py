"""A connection without a network, for pure parts that only tell connections apart."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sprocket.remoting.command import Buffer, ReceivedResponse, Request, Response
from sprocket.remoting.headers.base import Header


class FakeChannel:
    """A `ClientChannel`; nothing may be sent over it."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.peer = ("10.0.0.1", number)
        self.is_closed = False

    def reply(self, request: Request[Any], response: Response) -> None:
        raise AssertionError

    def refuse(self, request: Request[Any], error: Exception) -> None:
        raise AssertionError

    def answer(self, request: Request[Any], *frame: Buffer, code: int = 0) -> None:
        raise AssertionError

    def answer_run(self, requests: Sequence[Request[Any]], frames: bytes, code: int = 0) -> None:
        raise AssertionError

    def notify(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        raise AssertionError

    def request(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout_s: float
    ) -> "asyncio.Future[ReceivedResponse]":
        raise AssertionError

    def close(self) -> None:
        self.is_closed = True
