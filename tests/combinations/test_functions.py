"""Functions behind every guard, in a namespace or not, direct and through a proxy, while a master is replaced or rests.

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
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.message.namespaces import with_namespace
from sprocket.remoting.renewed_token import RenewedToken
from tests.acl.tokens.makers import key, key_files, token
from tests.combinations.profiles import ACTING, CONTROLLER, GUARDS, USERS_AND_TLS, Guard, Written, write
from tests.combinations.site import site_at
from tests.combinations.test_killed_tables import killed_master, launch, master_of
from tests.combinations.test_matrix import proxy_at
from tests.combinations.traffic import Traffic

pytestmark = pytest.mark.timeout(180)

_NAMESPACE = "shop|orders"
_ACCOUNT = with_namespace(_NAMESPACE, "app")
_PASSWORD = "a password of app"
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


_NAMES = ("direct", "proxied")
_FUNCTIONS = [counting(name) for name in _NAMES]


@asynccontextmanager
async def _admin_of(written: Written) -> AsyncIterator[AdminClient]:
    client = written.client
    async with AdminClient(client.namesrv, credentials=client.credentials, tls=client.tls) as admin:
        yield admin


async def _prepare(written: Written, functions: list[Function], namespace: str, *, with_account: bool) -> None:
    """Create the topics of functions; give the account of a tenant its rights at every server."""
    entry = PolicyEntryInfo(f"Namespace:{_NAMESPACE}", ["All"], None, "Allow")
    acl = AclInfo(f"User:{_ACCOUNT}", [PolicyInfo(None, [entry])])
    async with _admin_of(written) as admin:
        while len(masters := await admin.masters(None)) < len(written.groups):
            await asyncio.sleep(0.05)
        for server in [*admin.name_servers, *masters] if with_account else ():
            await admin.create_user(server, UserInfo(_ACCOUNT, _PASSWORD))
            await admin.create_acl(server, acl)
        # In one group, so that each key stays in its queue while the group has no master: state belongs to a queue.
        first = (await admin.cluster_info()).broker_addr_table[written.groups[0]].broker_addrs[0]
        for declared in functions:
            for topic in (*declared.inputs, declared.output or ""):
                config = TopicConfig(with_namespace(namespace, topic), 2, 2)
                await _often(lambda config=config: admin.create_topic(first, config))  # type: ignore[misc]
            await _often(lambda declared=declared: create_topics(admin, [declared], namespace))  # type: ignore[misc]


async def _often(attempt: Callable[[], Awaitable[None]]) -> None:
    """Make an attempt again until name servers and controllers know what was made before."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ClientError):
                return await attempt()
            await asyncio.sleep(0.05)


async def _feed(mq: sprocket.Connection, topic: str, done: asyncio.Event) -> None:
    """Send the inputs, each once; `done` is set when half of them are sent."""
    # A broker that was killed may start slowly on a busy machine.  It knows ids for 10 minutes.
    settings = SendSettings(idempotent=True, send_msg_timeout_s=300.0, retry_times_when_send_failed=1000)
    producer = mq.producer("feeders", settings=settings)
    for number in range(_INPUTS):
        message = Message(topic, b"%d" % number, unique_key=str(number))
        await producer.send(message, sharding_key=f"k{number % _KEYS}")
        if number == _INPUTS // 2:
            done.set()


async def _stored(admin: AdminClient, name: str, namespace: str) -> tuple[int, int]:
    """Return how many outputs and dead letters there are."""
    counts = []
    for topic in (f"{name}Out", f"%DLQ%{name}"):
        table = (await admin.topic_stats(with_namespace(namespace, topic))).offset_table
        counts.append(sum(one.max_offset for one in table.values()))
    return counts[0], counts[1]


async def _await_effects(written: Written, name: str, namespace: str) -> None:
    async with asyncio.timeout(90), _admin_of(written) as admin:
        stored = 0
        while stored < _INPUTS:
            with contextlib.suppress(ClientError):
                stored = sum(await _stored(admin, name, namespace))
            await asyncio.sleep(0.05)


async def _check_effects(written: Written, mq: sprocket.Connection, name: str, namespace: str) -> None:
    """Each input has one effect, and the state of each key has those of its outputs alone."""
    async with _admin_of(written) as admin:
        outputs, dead = await _stored(admin, name, namespace)
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

    async with site_at(tmp_path, profile, guard) as site:
        await _prepare(site.written, _FUNCTIONS, _NAMESPACE, with_account=True)
        await Traffic(site.written.client).send("before", site.written.groups)  # its slave is in sync
        group = site.written.groups[0]
        first, other = site.master(group), site.master(site.written.groups[1])
        own = replace(site.written.client, namespace=_NAMESPACE, credentials=RenewedToken(fetch))

        async def replace_master() -> None:
            await first.stop()
            if profile == ACTING:
                await first.start()

        await _count_while(site.written, own, other.broker.config.store.store_path_root_dir, replace_master)
        assert profile == ACTING or site.master(group) is not first


async def _count_while(
    written: Written, own: ClientSettings, accounts: Path, disturb: Callable[[], Awaitable[None]]
) -> None:
    """Let both functions count inputs; `disturb` when half of them are sent.

    The proxy has the accounts of a broker, whose store is `accounts`.
    """
    async with sprocket.connect(client=own) as mq, proxy_at(written, accounts) as (proxy, _):
        through = replace(own, namesrv=f"127.0.0.1:{proxy.remoting.listeners[0].port}")
        hosts = [
            FunctionHost(declared, settings, pytest.fail)
            for declared, settings in zip(_FUNCTIONS, (own, through), strict=True)
        ]
        halves = [asyncio.Event() for _ in _NAMES]
        feeding = [asyncio.create_task(_feed(mq, f"{name}In", half)) for name, half in zip(_NAMES, halves, strict=True)]
        try:
            for host in hosts:
                await host.start()
            for half in halves:
                await half.wait()
            await disturb()
            await asyncio.gather(*feeding)
            await asyncio.gather(*(_await_effects(written, name, own.namespace) for name in _NAMES))
        finally:
            for task in feeding:
                task.cancel()
            for host in hosts:
                await host.close()
        for name in _NAMES:
            await _check_effects(written, mq, name, own.namespace)


@pytest.mark.parametrize(
    ("guard", "namespace"),
    [
        # CI has the one with most guards.
        pytest.param(
            guard, namespace, marks=() if namespace and guard is USERS_AND_TLS else pytest.mark.slow,
            id=f"{guard.name}-{'tenant' if namespace else 'whole'}",
        )
        for guard in GUARDS
        for namespace in ("", _NAMESPACE)
    ],
)  # fmt: skip
async def test_each_input_has_one_effect_when_the_master_is_killed(
    tmp_path: Path, guard: Guard, namespace: str
) -> None:
    written = write(tmp_path, CONTROLLER, guard)
    cluster, group = written.cluster, written.groups[0]
    has_account = bool(namespace) and "authenticationEnabled" in guard.broker
    own = replace(written.client, namespace=namespace)
    if has_account:
        own = replace(own, credentials=Credentials(_ACCOUNT, _PASSWORD))
    try:
        await asyncio.to_thread(launch, cluster, list(cluster.members))
        await _prepare(written, _FUNCTIONS, namespace, with_account=has_account)
        await Traffic(written.client).send("before", written.groups)
        address = await master_of(written, group)
        other_address = await master_of(written, written.groups[1])
        other = next(one for one in cluster.members if one.address == other_address)

        async def kill() -> None:
            await killed_master(written, group)

        await _count_while(written, own, cluster.directory / other.name / "store", kill)
        assert await master_of(written, group) != address
    finally:
        await asyncio.to_thread(cluster.stop, lambda _: None)


def test_grpc_is_refused_by_name() -> None:
    with pytest.raises(IllegalArgument, match="grpc:// has no functions; connect to the name server"):
        FunctionHost(counting("f"), ClientSettings(namesrv="grpc://127.0.0.1:8081"), pytest.fail)
