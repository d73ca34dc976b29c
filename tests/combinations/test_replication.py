"""Replication between clusters behind every kind of guard, in both directions, over real sockets."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from replicate.config import Config, parse_config
from sprocket import ClientSettings, Message, MessageQueue, Producer
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from tests.acl.tokens.makers import key, key_files, token
from tests.combinations.profiles import GUARDS, OPERATOR, Guard, Written
from tests.combinations.site import Site, site_at
from tests.combinations.traffic import TOPIC, Traffic, is_refused
from tests.replicate.clusters import replicating
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)

_NAMES = ("east", "west")
# A guard with the next one, so each is at both ends.
_PAIRS = list(zip(GUARDS, [*GUARDS[1:], GUARDS[0]], strict=True))
_COUNT = 60


def _cluster(written: Written, credentials: str) -> str:
    lines = f'namesrv = "{written.cluster.namesrv}"\n{credentials}'
    if written.cluster.tls is not None:
        lines += f'tls-config = "{written.cluster.tls.path / "client.properties"}"\n'
    return lines


def _account(written: Written) -> str:
    if not written.guard.is_signed:
        return ""
    return f'access-key = "{OPERATOR.access_key}"\nsecret-key = "{OPERATOR.secret_key}"\n'


def _config(sites: list[Site], credentials: list[str], more: str) -> Config:
    text = "".join(
        f"[clusters.{name}]\n{_cluster(site.written, account)}"
        for name, site, account in zip(_NAMES, sites, credentials, strict=True)
    )
    for source, target in (_NAMES, _NAMES[::-1]):
        text += (
            f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{TOPIC}"]\ncheckpoint-s = 0.3\n'
            f"offsets-s = 0.3\n{more}"
        )
    return parse_config(text)


async def _sent(client: ClientSettings, group: str, name: str) -> list[bytes]:
    """Send messages, of which every second one is compressed, and return their bodies."""
    bodies = [b"%s %d " % (name.encode(), number) * (1000 if number % 2 else 1) for number in range(_COUNT)]
    async with Producer("writers", client=client) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, group, 0))
    return bodies


async def _copied_both_ways(
    stack: AsyncExitStack, sites: list[Site], credentials: list[str], more: str = ""
) -> list[Traffic]:
    """Replicate between two sites until both have all messages, and return what applications see there."""
    traffics = [Traffic(site.written.client) for site in sites]
    bodies: set[bytes] = set()
    for site, traffic, name in zip(sites, traffics, _NAMES, strict=True):
        await traffic.send(name, site.written.groups[:1])
        bodies |= {*traffic.acknowledged, *await _sent(site.written.client, site.written.groups[0], name)}
    replication = await stack.enter_async_context(replicating(_config(sites, credentials, more)))
    links = replication.links
    await until(lambda: all(sum(one.copied for one in link.copiers.values()) == _COUNT + 1 for link in links))
    for traffic, name in zip(traffics, _NAMES, strict=True):
        traffic.acknowledged = bodies
        await traffic.consume(f"readers-in-{name}")  # the other cluster gets what a group has consumed
    return traffics


@pytest.mark.parametrize(("one", "other"), _PAIRS, ids=lambda guard: guard.name)
async def test_clusters_behind_guards_copy_each_other(tmp_path: Path, one: Guard, other: Guard) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(150):
        sites = [
            await stack.enter_async_context(site_at(tmp_path / name, "2m-noslave", guard))
            for name, guard in zip(_NAMES, (one, other), strict=True)
        ]
        await _copied_both_ways(stack, sites, [_account(site.written) for site in sites], "rate-bytes = 200000\n")
        for site in sites:
            for stranger in site.written.strangers:
                assert await is_refused(stranger)


async def test_an_account_that_may_only_read_the_source_is_enough_there(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(150):
        sites = [await stack.enter_async_context(site_at(tmp_path / name, "2m-noslave", GUARDS[2])) for name in _NAMES]
        rights = {"Topic:*": ["Sub", "Get", "List"], "Group:*": ["Sub", "Get", "List"], "Cluster:*": ["Get", "List"]}
        entries = [PolicyEntryInfo(name, actions, decision="Allow") for name, actions in rights.items()]
        async with Traffic(sites[0].written.client).admin() as admin:
            for server in [*(await admin.cluster_info()).masters().values(), *admin.name_servers]:
                await admin.create_user(server, UserInfo("reader", "a long secret of reader", "Normal", "enable"))
                await admin.create_acl(server, AclInfo("User:reader", [PolicyInfo("Custom", entries)]))
        await Traffic(sites[0].written.client).send("east", sites[0].written.groups[:1])
        bodies = await _sent(sites[0].written.client, sites[0].written.groups[0], "east")
        accounts = ['access-key = "reader"\nsecret-key = "a long secret of reader"\n', _account(sites[1].written)]
        config = _config(sites, accounts, "")
        config = msgspec.structs.replace(config, links=config.links[:1])
        replication = await stack.enter_async_context(replicating(config))
        await until(lambda: sum(one.copied for one in replication.links[0].copiers.values()) == _COUNT + 1)
        copies = Traffic(sites[1].written.client)
        copies.acknowledged = set(bodies)
        await copies.consume("readers")


async def test_a_token_in_a_file_is_enough_and_may_be_renewed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(150):
        signer, guard = key("ES256"), GUARDS[2]
        (public,) = key_files(tmp_path / "keys", signer).values()
        keys: Mapping[str, str] = {"tokenPublicKey": public, "tokenSuperUserEnabled": "true"}
        guard = replace(guard, broker={**guard.broker, **keys}, name_server={**guard.name_server, **keys})
        sites = [await stack.enter_async_context(site_at(tmp_path / name, "2m-noslave", guard)) for name in _NAMES]
        file, now_s = tmp_path / "token", SystemClock().wall_ms() / 1000
        file.write_text(token(signer, now_s, OPERATOR.access_key, life_s=3) + "\n")
        traffics = await _copied_both_ways(stack, sites, [f'token-file = "{file}"\n'] * 2)
        file.write_text(token(signer, now_s, OPERATOR.access_key, life_s=600, token_id="t2"))
        await asyncio.sleep(max(0.0, now_s + 3.5 - SystemClock().wall_ms() / 1000))
        traffics[0].acknowledged = set()
        await traffics[0].send("later", sites[0].written.groups[:1])
        traffics[1].acknowledged |= traffics[0].acknowledged
        await traffics[1].consume("late-readers")
