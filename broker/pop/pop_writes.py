"""Writes to the revive log that requests wait for: those of one read are one append.

An answer is given when its records are where flush mode and role want them.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.core import BrokerCore
from broker.pop.pop_checks import refusal
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import InvariantError, StoreError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from store.record.record import PendingMessage

D = TypeVar("D")


class PendingWrites(Generic[D]):
    """What the requests of one read write, and whom to answer then.

    `answer` gets the requests that are done, each with what its answer says.
    """

    def __init__(
        self, core: BrokerCore, log: ReviveLog, answer: Callable[[list[tuple[Request[Any], D]]], None]
    ) -> None:
        self._config = core.config
        self._waits = core.waits
        self._fail = core.fail
        self._log = log
        self._answer = answer

    def serve(
        self,
        run: list[Request[Any]],
        records_of: Callable[[Request[Any]], tuple[list[PendingMessage], D]],
        checkpoints: int,
    ) -> None:
        """Append what `records_of` each request says, of which `checkpoints` are such per request, and answer.

        A request whose `records_of` raises is refused; one with no records is done.
        """
        messages: list[PendingMessage] = []
        writing: list[tuple[Request[Any], D]] = []
        done: list[tuple[Request[Any], D]] = []
        for request in run:
            try:
                records, answer = records_of(request)
            except Exception as error:  # Whatever it is, the others of the read are served.
                self._refuse(request, error)
                continue
            if records:
                messages += records
                writing.append((request, answer))
            else:
                done.append((request, answer))
        if done:
            self._answer(done)
        if messages:
            self._append(messages, writing, checkpoints * len(writing))

    def _append(self, messages: list[PendingMessage], writing: list[tuple[Request[Any], D]], checkpoints: int) -> None:
        try:
            if self._log.is_elsewhere:
                self._log.send(messages, lambda: self._answer(writing))
                return
            end = self._log.append(messages, checkpoints)
        except Exception as error:  # what was answered before keeps its answer
            self._refuse_all(writing, error)
            return
        if not self._waits.is_needed or (not checkpoints and self._config.broker.append_ack_async):
            self._answer(writing)
            return

        def stored(error: StoreError | None, code: ResponseCode) -> None:
            # Whatever the code, it is written.
            if error is None:
                self._answer(writing)
            else:
                self._refuse_all(writing, error)

        self._waits.wait(end, stored)

    def _refuse_all(self, writing: list[tuple[Request[Any], D]], error: Exception) -> None:
        for request, _ in writing:
            self._refuse(request, error)

    def _refuse(self, request: Request[Any], error: Exception) -> None:
        if isinstance(error, InvariantError):
            self._fail(error)
        request.channel.reply(request, refusal(request, error))
