"""Writes to the revive log for which requests wait: one append for all requests of one read.

A request is answered when its records are as durable as flush mode and role demand.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.core import BrokerCore
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import StoreError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from store.record.record import PendingMessage

D = TypeVar("D")


class PendingWrites(Generic[D]):
    """Writer of the records of one read's requests.

    `answer` is called with the requests that are done, each with the content of its answer.
    """

    def __init__(
        self, core: BrokerCore, log: ReviveLog, answer: Callable[[list[tuple[Request[Any], D]]], None]
    ) -> None:
        self._config = core.config
        self._waits = core.waits
        self._log = log
        self._answer = answer

    def serve(
        self,
        run: list[Request[Any]],
        records_of: Callable[[Request[Any]], tuple[list[PendingMessage], D]],
        checkpoints: int,
    ) -> None:
        """Append what `records_of` returns for each request, and answer; each request has `checkpoints` checkpoints.

        A request for which `records_of` raises is refused; one without records is done.
        """
        messages: list[PendingMessage] = []
        writing: list[tuple[Request[Any], D]] = []
        done: list[tuple[Request[Any], D]] = []
        for request in run:
            try:
                records, answer = records_of(request)
            except Exception as error:  # Whatever the error is, serve the other requests of the read.
                request.channel.refuse(request, error)
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
        except Exception as error:  # Requests that were answered before stay answered.
            self._refuse_all(writing, error)
            return
        if not self._waits.is_needed or (not checkpoints and self._config.broker.append_ack_async):
            self._answer(writing)
            return

        def stored(error: StoreError | None, code: ResponseCode) -> None:
            # The records are written, whatever the code says about flush and slaves.
            if error is None:
                self._answer(writing)
            else:
                self._refuse_all(writing, error)

        self._waits.wait(end, stored)

    def _refuse_all(self, writing: list[tuple[Request[Any], D]], error: Exception) -> None:
        for request, _ in writing:
            request.channel.refuse(request, error)
