"""Senders that go on while roles change, and rounds of changes under them."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.properties import encode
from tests.broker.controller.rig import Group
from tests.broker.rig import TOPIC, records
from tests.send_headers import send_header
from tests.waiting import until


class Load:
    """Senders of numbered messages, one after the other and each to its own queue, to whichever replica they think.

    A message that is refused is not sent again, so none may be stored twice.
    """

    def __init__(self, it: Group, senders: int, randomly: random.Random) -> None:
        self._group = it
        self._random = randomly
        self.acknowledged: list[list[int]] = [[] for _ in range(senders)]
        self._is_running = True
        self._clients = {broker_id: replica.client for broker_id, replica in it.replicas.items()}
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(senders)]

    async def _send(self, sender: int) -> None:
        number = 0
        while self._is_running:
            # Mostly to the master, sometimes to the one that was or will be it.
            broker_id = self._group.master if self._random.random() < 0.8 else self._random.choice([1, 2])
            text = encode({"UNIQ_KEY": f"{number:032X}"})
            header = send_header(TOPIC, queue_id=sender, flag=7, properties=text)
            body = b"%d %d" % (sender, number) + b"." * self._random.randrange(50)
            answer = await self._clients[broker_id].ask(RequestCode.SEND_MESSAGE_V2, header, body)
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged[sender].append(number)
            else:
                await asyncio.sleep(0.002)
            number += 1

    async def goes_on(self) -> None:
        """Wait until each sender has a few more acknowledgements."""
        wanted = [len(one) + 5 for one in self.acknowledged]
        await until(lambda: all(len(one) >= count for one, count in zip(self.acknowledged, wanted, strict=True)))

    async def stop(self) -> None:
        self._is_running = False
        await asyncio.gather(*self._tasks)
        for client in self._clients.values():
            await client.close()

    def check(self) -> None:
        """Every replica has each acknowledged message once, and in order."""
        for replica in self._group.replicas.values():
            found = records(replica.broker, TOPIC)
            for sender, acknowledged in enumerate(self.acknowledged):
                numbers = [int(bytes(one.body).split(b".")[0].split()[1]) for one in found if one.queue_id == sender]
                assert numbers == sorted(set(numbers)), "once, and in order"
                assert set(acknowledged) <= set(numbers)


async def both_know(it: Group) -> None:
    """Both replicas learn of the election at the same time."""
    await it.elect(3 - it.master)


async def old_master_knows_late(it: Group) -> None:
    """The old master is cut off and appends alone, until its lease ends; it hears of the election late."""
    old = it.master
    await it[3 - old].border.switch.rest()
    await asyncio.sleep(0.02)
    it[old].border.lease.given_up()
    await it.elect(3 - old, followers=False)
    await asyncio.sleep(0.02)
    await it[old].border.switch.follow(it.tenure())


async def nobody_leads_for_a_while(it: Group) -> None:
    """The group has no master, then the same one leads again."""
    for replica in it.replicas.values():
        await replica.border.switch.rest()
    await it.elect(it.master)


ROUNDS: tuple[Callable[[Group], Awaitable[None]], ...] = (
    both_know,
    old_master_knows_late,
    both_know,
    nobody_leads_for_a_while,
    old_master_knows_late,
)


async def change_under_load(it: Group, rounds: int, seed: int) -> None:
    """Change the roles of two replicas `rounds` times under load, and check what they have in the end."""
    randomly = random.Random(seed)
    await it.elect(1)
    load = Load(it, 3, randomly)
    await load.goes_on()
    for _ in range(rounds):
        await randomly.choice(ROUNDS)(it)
        await load.goes_on()
    await load.stop()
    await it.in_step()
    load.check()
