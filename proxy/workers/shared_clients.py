"""What the workers of one proxy tell each other about clients.

The connections of one client may end at several workers: its telemetry stream at one, its receives at another.
So every worker knows the settings of every client, hears that a client lives or has ended, and knows which workers
hold handles of it.  Each message names the client's account: a worker ignores what another account's client with the
same id does elsewhere.  A handle that this worker does not hold is asked for there, and only there: a client with one
connection costs no message between workers.
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from proxy.brokers.receipts import parse_receipt
from proxy.clients.registry import Client, Clients
from proxy.handles.held_handles import Held, HeldHandles
from proxy.status import Refusal
from proxy.workers.link import Link, Message
from sprocket.client.connection.wakeup import pause
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire

logger = logging.getLogger(__name__)

# How often workers say which clients live; clients call at least every 10 s.
_TELL_PERIOD_S: Final = 3.0
# Limit of the question for a handle.
_ASK_LIMIT_S: Final = 1.0
_MAX_IDS: Final = 2000


class SharedClients:
    """Clients of this worker and of the others, of whom it hears by the line that `open_link` opens.

    `orphaned` is called when their supervisor is gone.  `tell_lite_taken` gets client, group and lite topic of what
    another worker heard from a broker.
    """

    def __init__(
        self,
        open_link: Callable[[], Awaitable[Link]],
        orphaned: Callable[[], None],
        clients: Clients,
        held: HeldHandles,
        monotonic: Callable[[], float],
        tell_lite_taken: Callable[[str, str, str], object],
    ) -> None:
        self._tell_lite_taken = tell_lite_taken
        self._open_link = open_link
        self._orphaned = orphaned
        self._link: Link | None = None
        self._clients = clients
        self._held = held
        self._monotonic = monotonic
        self._told_at = monotonic()
        # Workers that hold handles of a client, and the clients of whom this worker said so.
        self._holders: dict[str, set[int]] = {}
        self._said: set[str] = set()
        self._asked: dict[int, asyncio.Future[Held | None]] = {}
        self._questions = 0
        clients.on_report.append(self._reported)
        clients.on_end.append(self._ended)
        clients.on_forget.append(self._forgotten)
        held.on_first.append(self._holds)

    async def open(self) -> None:
        """Open the line to the other workers."""
        self._link = await self._open_link()

    async def listen(self) -> None:
        """Take what the other workers say until their supervisor is gone."""
        assert self._link is not None
        await self._link.read(self.take)
        logger.warning("event=supervisor_gone note=%r", "this worker ends")
        self._orphaned()

    async def tell_alive(self) -> None:
        """Tell the others again and again which clients called here."""
        while True:
            await pause(_TELL_PERIOD_S)
            since, self._told_at = self._told_at, self._monotonic()
            alive = [(client.client_id, client.account) for client in self._clients if client.called_at >= since]
            for at in range(0, len(alive), _MAX_IDS):
                self._send("alive", clients=alive[at : at + _MAX_IDS])

    def close(self) -> None:
        """Close the line."""
        if self._link is not None:
            self._link.close()

    def _send(self, kind: str, *, to: int | None = None, **fields: Any) -> None:
        if self._link is not None:
            self._link.send(kind, to=to, **fields)

    # What happens here

    def _reported(self, client: Client) -> None:
        self._report(client, None)

    def _report(self, client: Client, to: int | None) -> None:
        if client.reported is not None:
            settings = base64.b64encode(client.reported.SerializeToString()).decode()
            self._send("report", to=to, client=client.client_id, account=client.account, settings=settings)

    def _ended(self, client: Client) -> None:
        self._send("end", client=client.client_id, account=client.account)

    def _forgotten(self, client: Client) -> None:
        self._holders.pop(client.client_id, None)
        self._said.discard(client.client_id)

    def _holds(self, client_id: str) -> None:
        if client_id not in self._said:
            self._said.add(client_id)
            self._say_holds(client_id, None)

    def _say_holds(self, client_id: str, to: int | None) -> None:
        self._send("holds", to=to, client=client_id, account=self._account(client_id))

    def _account(self, client_id: str) -> str | None:
        client = self._clients.get(client_id)
        return None if client is None else client.account

    def lite_taken(self, client_id: str, group: str, lite_topic: str) -> None:
        """Tell the others that a client, whose telemetry stream is not here, no longer consumes a lite topic."""
        self._send("lite_taken", client=client_id, group=group, lite_topic=lite_topic)

    async def held_elsewhere(self, client_id: str, group: str, message_id: str, given: str) -> Held | None:
        """Take a handle from the worker that holds it; None if no worker does."""
        for worker in sorted(self._holders.get(client_id, ())):
            self._questions += 1
            number = self._questions
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            self._send(
                "take", to=worker, number=number, client=client_id, account=self._account(client_id), group=group,
                message=message_id, given=given,
            )  # fmt: skip
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ASK_LIMIT_S):
                        held: Held | None = await answer
                        if held is not None:
                            return held
            finally:
                del self._asked[number]
        return None

    # What others say

    def take(self, message: Message) -> None:
        """Take a message of another worker.  A malformed one is logged: it comes from our own processes."""
        try:
            getattr(self, f"_on_{message['kind']}")(message)
        except (KeyError, AttributeError, TypeError, ValueError, DecodeError, Refusal) as error:
            peer_lines.error(
                logger, "", "event=worker_message_unreadable message=%r reason=%r", str(message)[:200], str(error)
            )

    def _on_joined(self, message: Message) -> None:
        """Tell a worker that has just started."""
        worker = message["from"]
        for client in self._clients:
            if client.is_here:
                self._report(client, worker)
        for client_id in self._said:
            self._say_holds(client_id, worker)

    def _on_report(self, message: Message) -> None:
        settings = wire.Settings.FromString(base64.b64decode(message["settings"]))
        self._clients.report_elsewhere(message["client"], settings, message["account"])

    def _on_alive(self, message: Message) -> None:
        for client_id, account in message["clients"]:
            self._clients.heard(client_id, account)

    def _on_end(self, message: Message) -> None:
        self._clients.end_elsewhere(message["client"], message["account"])

    def _on_lite_taken(self, message: Message) -> None:
        self._tell_lite_taken(message["client"], message["group"], message["lite_topic"])

    def _on_holds(self, message: Message) -> None:
        self._holders.setdefault(message["client"], set()).add(message["from"])
        self._clients.heard(message["client"], message["account"])

    def _on_take(self, message: Message) -> None:
        client_id, held = message["client"], None
        if self._clients.is_of(client_id, message["account"]):
            held = self._held.take(client_id, message["group"], message["message"], message["given"])
        renewing = None if held is None else held.renewing
        if renewing is None:
            self._send("taken", to=message["from"], number=message["number"], held=_fields(held))
        else:  # a broker refuses the old handle
            renewing.add_done_callback(
                lambda _: self._send("taken", to=message["from"], number=message["number"], held=_fields(held))
            )

    def _on_taken(self, message: Message) -> None:
        answer = self._asked.get(message["number"])
        if answer is not None and not answer.done():
            answer.set_result(_held(message["held"]))


_PLAIN: Final = ("client_id", "group", "topic", "message_id", "given", "received_ms", "reconsume_times", "renewals")


def _fields(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    receipt = held.receipt
    plain = {name: getattr(held, name) for name in _PLAIN}
    return {**plain, "receipt": receipt.encode(), "lite_topic": receipt.lite_topic}


def _held(fields: dict[str, Any] | None) -> Held | None:
    if fields is None:
        return None
    # It names the handle, so it has the message.
    receipt = parse_receipt(fields["receipt"])._replace(lite_topic=fields["lite_topic"])
    return Held(receipt=receipt, is_delivered=True, **dict(_plain(fields)))


def _plain(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, fields[name]) for name in _PLAIN)
