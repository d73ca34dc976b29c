"""Functions with TLS, tokens and a namespace, direct and through a proxy, while a master is replaced or rests.

Each input has one effect: an output, or a dead letter.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import sprocket
from sprocket import ClientError, ClientSettings, ConsumeFrom, Message
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.errors import IllegalArgument
from sprocket.client.send.send_request import SendSettings
from sprocket.common.clock import SystemClock
from sprocket.functions import Context, Function, FunctionHost, Retries, create_topics, function
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.namespaces import with_namespace
from sprocket.remoting.renewed_token import RenewedToken
from tests.acl.tokens.makers import key, key_files, token
from tests.combinations.profiles import ACTING, CONTROLLER, USERS_AND_TLS
from tests.combinations.site import Site, site_at
from tests.combinations.test_matrix import proxy_at
from tests.combinations.traffic import Traffic

pytestmark = pytest.mark.timeout(180)

_NAMESPACE = "shop|orders"
_ACCOUNT = with_namespace(_NAMESPACE, "app")
_KEYS = 4
_INPUTS = 240
_TOKEN_LIFE_S = 8


@dataclass
class Counted:
    """An input, and how many of its key had an effect before it."""

    key: str
    number: int
    count: int


def counting(name: str) -> Function:
    """A function that counts by key; one input of ten is a dead letter."""

    @function(input=f"{name}In", output=f"{name}Out", group=name, state=int, retries=Retries(times=0))
    async def count(number: int, ctx: Context[int]) -> Counted:
        before = ctx.state.get(ctx.key) or 0
        ctx.state.put(ctx.key, before + 1)
        if number % 10 == 7:
            raise ValueError("a dead letter")
        return Counted(ctx.key, number, before)

    return count


@asynccontextmanager
async def _admin_of(site: Site) -> AsyncIterator[AdminClient]:
    client = site.written.client
    async with AdminClient(client.namesrv, credentials=client.credentials, tls=client.tls) as admin:
        yield admin


async def _prepare(site: Site, functions: list[Function]) -> None:
    """Give the tenant's account its rights at every server, and create the topics of its functions."""
    entry = PolicyEntryInfo(f"Namespace:{_NAMESPACE}", ["All"], None, "Allow")
    acl = AclInfo(f"User:{_ACCOUNT}", [PolicyInfo(None, [entry])])
    async with _admin_of(site) as admin:
        while len(masters := await admin.masters(None)) < len(site.written.groups):
            await asyncio.sleep(0.05)
        for server in [*admin.name_servers, *masters]:
            await admin.create_user(server, UserInfo(_ACCOUNT, "a password that nobody uses"))
            await admin.create_acl(server, acl)
        for declared in functions:
            for topic in (*declared.inputs, declared.output or ""):
                for master in masters:
                    await admin.create_topic(master, TopicConfig(with_namespace(_NAMESPACE, topic), 1, 1))
            await _often(lambda declared=declared: create_topics(admin, [declared], _NAMESPACE))  # type: ignore[misc]


async def _often(attempt: Callable[[], Awaitable[None]]) -> None:
    """Make an attempt again until name servers and controllers know what was made before."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ClientError):
                return await attempt()
            await asyncio.sleep(0.05)


async def _feed(mq: sprocket.Connection, topic: str, done: asyncio.Event) -> None:
    """Send the inputs, each once; `done` is set when half of them are sent."""
    settings = SendSettings(idempotent=True, send_msg_timeout_s=30.0, retry_times_when_send_failed=100)
    producer = mq.producer("feeders", settings=settings)
    for number in range(_INPUTS):
        message = Message(topic, b"%d" % number, unique_key=str(number))
        await producer.send(message, sharding_key=f"k{number % _KEYS}")
        if number == _INPUTS // 2:
            done.set()


async def _stored(admin: AdminClient, name: str) -> tuple[int, int]:
    """Return how many outputs and dead letters there are."""
    counts = []
    for topic in (f"{name}Out", f"%DLQ%{name}"):
        table = (await admin.topic_stats(with_namespace(_NAMESPACE, topic))).offset_table
        counts.append(sum(one.max_offset for one in table.values()))
    return counts[0], counts[1]


async def _await_effects(site: Site, name: str) -> None:
    async with asyncio.timeout(90), _admin_of(site) as admin:
        stored = 0
        while stored < _INPUTS:
            with contextlib.suppress(ClientError):
                stored = sum(await _stored(admin, name))
            await asyncio.sleep(0.05)


async def _check_effects(site: Site, mq: sprocket.Connection, name: str) -> None:
    """Each input has one effect, and the state of each key has those of its outputs alone."""
    async with _admin_of(site) as admin:
        outputs, dead = await _stored(admin, name)
    assert (outputs, dead) == (_INPUTS - _INPUTS // 10, _INPUTS // 10)
    by_key: dict[str, list[Counted]] = defaultdict(list)
    async with (
        asyncio.timeout(60),
        mq.topic(f"{name}Out", Counted).consume(f"{name}-readers", consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        for _ in range(outputs):
            one = await anext(consumer)
            by_key[one.key].append(one)
    assert sorted(one.number for found in by_key.values() for one in found) == [
        number for number in range(_INPUTS) if number % 10 != 7
    ]
    for found in by_key.values():
        assert [one.count for one in found] == list(range(len(found)))


@pytest.mark.parametrize("profile", [CONTROLLER, ACTING])
async def test_each_input_of_a_tenants_function_has_one_effect(tmp_path: Path, profile: str) -> None:
    signer = key("ES256")
    (public,) = key_files(tmp_path / "keys", signer).values()
    keys = {"tokenPublicKey": public}
    old = USERS_AND_TLS
    guard = replace(old, broker={**old.broker, **keys}, name_server={**old.name_server, **keys}, proxy={
        **old.proxy, **keys
    })  # fmt: skip

    async def fetch() -> str:
        now_s = SystemClock().wall_ms() / 1000
        return token(signer, now_s, _ACCOUNT, life_s=_TOKEN_LIFE_S, token_id=f"t{now_s}")

    names = ("direct", "proxied")
    functions = [counting(name) for name in names]
    async with site_at(tmp_path, profile, guard) as site:
        await _prepare(site, functions)
        await Traffic(site.written.client).send("before", site.written.groups)  # its slave is in sync
        group = site.written.groups[0]
        first, other = site.master(group), site.master(site.written.groups[1])
        own = replace(site.written.client, namespace=_NAMESPACE, credentials=RenewedToken(fetch))
        async with sprocket.connect(client=own) as mq, proxy_at(site, other.broker) as (proxy, _):
            through = replace(own, namesrv=f"127.0.0.1:{proxy.remoting.listeners[0].port}")
            hosts = [
                FunctionHost(declared, settings, pytest.fail)
                for declared, settings in zip(functions, (own, through), strict=True)
            ]
            halves = [asyncio.Event() for _ in names]
            feeding = [
                asyncio.create_task(_feed(mq, f"{name}In", half)) for name, half in zip(names, halves, strict=True)
            ]
            try:
                for host in hosts:
                    await host.start()
                for half in halves:
                    await half.wait()
                await first.stop()
                if profile == ACTING:
                    await first.start()
                await asyncio.gather(*feeding)
                await asyncio.gather(*(_await_effects(site, name) for name in names))
            finally:
                for task in feeding:
                    task.cancel()
                for host in hosts:
                    await host.close()
            assert profile == ACTING or site.master(group) is not first
            for name in names:
                await _check_effects(site, mq, name)


def test_grpc_is_refused_by_name() -> None:
    with pytest.raises(IllegalArgument, match="grpc:// has no functions; connect to the name server"):
        FunctionHost(counting("f"), ClientSettings(namesrv="grpc://127.0.0.1:8081"), pytest.fail)
