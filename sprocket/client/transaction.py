"""Transactional sends: a message that consumers see if, and only if, the application's own transaction succeeds.

The broker stores the message invisibly.  Then the application runs its transaction and reports the outcome.  Without a
report the broker asks a connected producer of the group.
Source: RocketMQ 5.3.3, `TransactionMQProducer`, `DefaultMQProducerImpl.sendMessageInTransaction`, `endTransaction`,
`checkTransactionState`, `ClientRemotingProcessor.checkTransactionState`.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError, IllegalArgument, IllegalMessage
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.producer import Producer
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.client.trace.recorder import TraceSettings
from sprocket.common.cancellation import is_cancelled
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.client import CheckTransactionStateRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC
from sprocket.remoting.routes import Action, Resource, Route, Traffic

logger = logging.getLogger(__name__)

# `TransactionMQProducer.checkRequestHoldMax`: if there is no room for a check, the broker repeats it later.
_MAX_CHECKS: Final = 2000


class TransactionState(Enum):
    """Outcome of the application's transaction; values as in END_TRANSACTION (`LocalTransactionState`)."""

    COMMIT = int(SysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
    UNKNOWN = 0


class TransactionResult(SendResult):
    """Place of the half message, and the outcome that the broker got."""

    __slots__ = ("state",)

    def __init__(self, sent: SendResult, state: TransactionState) -> None:
        super().__init__(
            sent.status,
            sent.message_id,
            sent.offset_message_id,
            sent.queue,
            sent.queue_offset,
            sent.transaction_id,
            sent.recall_handle,
        )
        self.state = state


# `LocalTransactionState`
_STATE_NAMES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
# Both may be async.  A sync one runs in the event loop and must not block.
Local = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
Checker = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]


class TransactionProducer(Producer):
    """Producer whose messages may be part of a transaction; an async context manager like `Producer`::

        async def checker(message: ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT if await orders.exists(message.message_id) else TransactionState.ROLLBACK

        async with TransactionProducer("orders", "127.0.0.1:9876", checker=checker) as producer:
            await producer.send_in_transaction(Message("Orders", b"..."), local)

    `checker` gets messages of the group whose transaction is open, also those of a producer that has died, and looks up
    the outcome.  An error that it raises counts as UNKNOWN; the broker asks again.  `check_threads` checks run at a
    time.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        checker: Checker,
        check_threads: int = 4,
        settings: SendSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        super().__init__(group, namesrv, settings=settings, client=client, clock=clock, trace=trace)
        self._checker = arguments.handler("checker", checker, "a message")
        self._check_threads = arguments.whole("check_threads", check_threads, 1)
        self._questions: asyncio.Queue[tuple[Request[CheckTransactionStateRequestHeader], ReceivedMessage]]
        self._questions = asyncio.Queue(_MAX_CHECKS)

    async def start(self) -> None:
        """Start, and tell the brokers of this producer, which may get checks at once.  Raises as `Producer.start`."""
        await super().start()
        for _ in range(self._check_threads):
            self._instance.spawn(self._answer_questions())
        await self._tell_brokers()

    async def _tell_brokers(self) -> None:
        # Brokers must know this producer before it sends anything, because they may send it checks.
        try:
            await self._instance.refresh_route(AUTO_CREATE_TOPIC)
            await self._instance.heartbeat_all()
        except ClientError as error:
            logger.info("event=brokers_not_told group=%s reason=%r", self.group, str(error))

    def _routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._asked,
                Resource.NONE, Action.NONE, Traffic.CLIENT,
            )
        ]  # fmt: skip

    # Sending

    async def send_in_transaction(
        self,
        message: Message,
        local: Local,
        *,
        check_immunity_s: int | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        """Send `message` as a half message, run `local(message, transaction_id)`, and report its result to the broker.

        With COMMIT consumers get the message, with ROLLBACK nobody does, with UNKNOWN the broker asks the checker
        later.  If `local` raises, the broker gets UNKNOWN and the error is raised here.  If the broker stored the
        message less durably than configured (`SendStatus`), it is rolled back and `local` does not run.  For
        `check_immunity_s` the broker sends no check; a commit after that is too late.

        Raises as `send`; IllegalMessage also for a delay.
        """
        self._check_place(message, queue, None, timeout_s)
        arguments.handler("local", local, "the message and its transaction id", 2)
        if check_immunity_s is not None:
            arguments.whole("check_immunity_s", check_immunity_s, 0)
        if self._settings.idempotent:
            raise IllegalArgument(
                "idempotent is set, but brokers do not recognise messages of transactions; use a producer without it"
            )
        request = self._prepare(message)
        if message.is_delayed:
            raise IllegalMessage("a message of a transaction cannot be delayed")
        if message.priority is not None:
            raise IllegalMessage("a message of a transaction cannot have a priority")
        if message.lite_topic:
            raise IllegalMessage("a message of a transaction cannot have a lite topic")
        own = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._instance.names.whole(self.group)}
        if check_immunity_s is not None:
            own[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(check_immunity_s)
        request.properties += names.encode(own)
        request.sys_flag |= int(SysFlag.TRANSACTION_PREPARED)
        await self._sender.take_room(len(request.body))
        try:
            sent = await self._sender.send(request, queue=queue, timeout_s=timeout_s)
        finally:
            self._sender.give_room(len(request.body))
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            state = TransactionState.UNKNOWN
            try:
                state = await _outcome(local(message, sent.transaction_id or sent.message_id))
            finally:
                await self._end(message.topic, sent, state)
        else:
            await self._end(message.topic, sent, state)
        return TransactionResult(sent, state)

    async def _end(self, topic: str, sent: SendResult, state: TransactionState) -> None:
        """Send the outcome oneway, as Java's client does: if it is lost, the broker asks."""
        broker_name = self._instance.broker_name_of(sent.queue)
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=int(sent.offset_message_id[-16:], 16),
            commit_or_rollback=state.value,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
            broker_name=broker_name,
        )
        address = self._instance.master_address(broker_name)
        try:
            if address is None:
                raise ClientError(f"the address of {broker_name} is not known any more")
            await self._instance.remoting.notify(address, RequestCode.END_TRANSACTION, header)
            self._trace_end(topic, sent.message_id, sent.transaction_id, state, address, is_check=False)
        except ClientError as error:
            logger.warning(
                "event=transaction_end_not_sent message_id=%s state=%s reason=%r",
                sent.message_id, state.name, str(error),
            )  # fmt: skip

    def _trace_end(
        self, topic: str, message_id: str, transaction_id: str | None, state: TransactionState, address: str,
        *, is_check: bool,
    ) -> None:  # fmt: skip
        if self._tracing is not None:
            name, topic = _STATE_NAMES[state], self._instance.names.bare(topic)
            self._tracing.ended_transaction(topic, message_id, transaction_id, name, address, is_check=is_check)

    # Answering checks

    def _asked(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        queue = MessageQueue("", request.header.broker_name or "", 0)
        try:
            messages = self._instance.names.decoded(request.body, queue)
        except ProtocolError as error:
            logger.warning("event=transaction_question_unreadable reason=%r", str(error))
            return
        group = self._instance.names.whole(self.group)
        if len(messages) != 1 or messages[0].properties.get(names.PRODUCER_GROUP) != group:
            logger.warning("event=transaction_question_ignored group=%s messages=%d", self.group, len(messages))
            return
        try:
            self._questions.put_nowait((request, messages[0]))
        except asyncio.QueueFull:
            logger.warning("event=transaction_question_dropped group=%s max=%d", self.group, _MAX_CHECKS)

    async def _checked(self, message: ReceivedMessage) -> TransactionState:
        """Return what the checker says; UNKNOWN if it fails."""
        try:
            return await _outcome(self._checker(message))
        except (Exception, asyncio.CancelledError):
            if is_cancelled():
                raise
            logger.exception("event=checker_failed group=%s message_id=%s", self.group, message.message_id)
            return TransactionState.UNKNOWN

    async def _answer_questions(self) -> None:
        while True:
            request, message = await self._questions.get()
            state = await self._checked(message)
            asked = request.header
            header = EndTransactionRequestHeader(
                topic=asked.topic,
                producer_group=self.group,
                tran_state_table_offset=asked.tran_state_table_offset,
                commit_log_offset=asked.commit_log_offset,
                commit_or_rollback=state.value,
                from_transaction_check=True,
                msg_id=message.message_id,
                transaction_id=asked.transaction_id,
                broker_name=asked.broker_name,
            )
            request.channel.notify(RequestCode.END_TRANSACTION, self._instance.names.whole_fields(header))
            peer = "{}:{}".format(*request.channel.peer)
            self._trace_end(
                asked.topic or message.topic, message.message_id, asked.transaction_id, state, peer, is_check=True
            )


async def _outcome(answer: TransactionState | Awaitable[TransactionState]) -> TransactionState:
    state = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(state, TransactionState):
        raise IllegalArgument(f"{state!r} is no TransactionState; return COMMIT, ROLLBACK or UNKNOWN")
    return state
