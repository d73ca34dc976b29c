"""Acknowledgements and changes that no honest client sends."""

from pathlib import Path

from sprocket.common.errors import DiskFull
from sprocket.remoting.bodies.pop import BatchAck
from sprocket.remoting.codes import ResponseCode
from tests.broker.pop.rig import ack_batch, change, pop, popped
from tests.broker.rig import GROUP, TOPIC, running_broker


async def test_times_of_messages_that_were_not_popped_in_order_are_not_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(20):
            await client.send(b"%d" % number)
        (message,) = await popped(client, order=True, queue_id=0, max_msg_nums=1)
        for offset in range(20):
            await change(client, message, 30_000, offset=offset)
        info = broker.pop.order_info._find(TOPIC, GROUP, 0)
        assert info is not None and info.visible_at is not None
        assert set(info.visible_at) == {0}


async def test_one_request_does_not_acknowledge_without_end(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        handle = (await popped(client))[0].handle
        full = BatchAck(
            GROUP, TOPIC, "0", handle.first_offset, 0, handle.revive_queue_id, handle.pop_time_ms,
            handle.invisible_ms, b"\xff" * 512,
        )  # fmt: skip
        assert (await ack_batch(client, full)).code == ResponseCode.SUCCESS
        assert (await ack_batch(client, *[full] * 1_000)).code == ResponseCode.MESSAGE_ILLEGAL


async def test_an_undone_pop_is_not_in_flight(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        append = broker.store.append

        def full(messages: object) -> None:
            raise DiskFull("no room")

        broker.store.append = full  # type: ignore[method-assign, assignment]
        assert (await pop(client)).code != ResponseCode.SUCCESS
        broker.store.append = append  # type: ignore[method-assign]
        assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 0
