"""A start that fails leaves nothing behind: no port, no lock of the store, no task.

What is wrong with the configuration is found before anything is written.
"""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from sprocket.common.errors import ConfigError, StoreError
from sprocket.remoting.serving.listening import bound, serve
from tests.broker.insides import periodic_of, server_of, services_of
from tests.broker.rig import TestClient, broker_config, store_config
from tests.compat.ports import free_broker_port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def fails(*_: Any) -> None:
    raise StoreError("planted")


async def fails_later(*_: Any) -> None:
    raise StoreError("planted")


STEPS: dict[str, Callable[[Broker], tuple[object, str, Any]]] = {
    "a second port": lambda broker: (broker.replication, "bind", fails_later),
    "the store": lambda broker: (broker.store, "start", fails),
    "a table": lambda broker: (broker.offsets, "load", fails),
    "the first service's files": lambda broker: (services_of(broker)[0], "load", fails),
    "the last service's files": lambda broker: (services_of(broker)[-1], "load", fails),
    "listening": lambda broker: (server_of(broker), "start", fails_later),
    "listening for slaves": lambda broker: (broker.replication, "listen", fails_later),
    "the first service": lambda broker: (services_of(broker)[0], "start", fails),
    "the last service": lambda broker: (services_of(broker)[-1], "start", fails),
    "work of every second": lambda broker: (periodic_of(broker)[-1], "start", fails),
    "the end": lambda broker: (broker.pre_online, "start", fails),
}


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
@pytest.mark.parametrize("step", list(STEPS))
async def test_a_start_that_fails_leaves_nothing_behind(
    tmp_path: Path, step: str, role: BrokerRole, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_broker_port()
    config = broker_config(listen_port=port, broker_role=role, broker_id=int(role is BrokerRole.SLAVE))
    broker = Broker(config, store_config(tmp_path))
    before = asyncio.all_tasks()
    monkeypatch.setattr(*STEPS[step](broker))
    with pytest.raises(StoreError, match="planted"):
        await broker.start()
    assert [is_free(one) for one in (port, port + 1, port - 2)] == [True] * 3
    assert "event=start_not_undone" not in caplog.text
    await broker.stop()  # as the process does; nothing is left to stop
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    monkeypatch.undo()
    # The store is free and whole.
    again = Broker(config, store_config(tmp_path))
    await again.start()
    assert again.store.recovery is not None
    await again.stop()


async def test_a_port_that_is_taken_is_found_before_anything_is_written(tmp_path: Path) -> None:
    port = free_broker_port()
    for taken, key in ((port, "listenPort"), (port + 1, "haListenPort")):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("0.0.0.0", taken))
            other.listen()
            broker = Broker(broker_config(listen_port=port), store_config(tmp_path))
            with pytest.raises(ConfigError, match=rf"{taken}: Address already in use.*{key}"):
                await broker.start()
        assert files_below(tmp_path) == []
        assert is_free(port) and is_free(port + 1)


async def test_an_outgoing_connection_cannot_take_the_port_for_slaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before the store is opened: recovery may take minutes, in which the machine makes many connections."""
    port = free_broker_port()
    broker = Broker(broker_config(listen_port=port), store_config(tmp_path))
    start, seen = broker.store.start, list[bool]()

    def look() -> None:
        for one in (port, port + 1):
            # Without SO_REUSEADDR, as the kernel chooses a port for a connection.
            with socket.socket() as other, pytest.raises(OSError):
                other.bind(("0.0.0.0", one))
            with socket.socket() as client:
                seen.append(client.connect_ex(("127.0.0.1", one)) == 0)
        start()

    monkeypatch.setattr(broker.store, "start", look)
    await broker.start()
    assert seen == [False, False]  # refused until they are served: clients turn to another broker at once
    client = TestClient(broker.address)
    await client.send()
    await client.close()
    await broker.stop()


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "broken accounts": ({"acl_enable": True, "rocketmq_home": "HOME"}, {}, "plain_acl.yml"),
    "no accounts to become users": (
        {"authentication_enabled": True, "migrate_auth_from_v1_enabled": True},
        {},
        "rocketmqHome",
    ),
    "no secret": ({}, {"ha_secret_file": "HOME/none"}, "haSecretFile"),
    "delay levels": ({}, {"message_delay_level": "1s x"}, "messageDelayLevel"),
    "no address": ({"broker_ip1": "no such host.invalid"}, {}, "brokerIP1"),
    "sizes": ({}, {"max_index_num": 1 << 31}, "maxIndexNum"),
}


@pytest.mark.parametrize("name", list(WRONG))
async def test_a_wrong_configuration_writes_nothing(tmp_path: Path, name: str) -> None:
    broker, store, key = WRONG[name]
    home, root = tmp_path / "home", tmp_path / "data"
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text("accounts: [")

    def there(changes: dict[str, Any]) -> dict[str, Any]:
        return {
            one: str(value).replace("HOME", str(home)) if isinstance(value, str) else value
            for one, value in changes.items()
        }

    with pytest.raises(ConfigError, match=key):
        await Broker(broker_config(**there(broker)), store_config(root, **there(store))).start()
    assert not root.exists() and files_below(home) == [home / "conf", accounts]


def test_one_port_for_both_is_refused() -> None:
    with pytest.raises(ConfigError, match="haListenPort = 10911: equal to listenPort"):
        broker_config(listen_port=10911, ha_listen_port=10911).check()


async def test_a_port_that_another_process_took_after_bind(tmp_path: Path) -> None:
    """Two may bind a port with SO_REUSEADDR while neither listens; the second one to listen is told."""
    server = await bound(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            await serve(server)


async def test_a_port_beyond_the_last_names_its_key(tmp_path: Path) -> None:
    broker = Broker(broker_config(listen_port=65535), store_config(tmp_path))
    if not is_free(65535):
        pytest.skip("somebody uses port 65535")
    with pytest.raises(ConfigError, match=r"65536 is no port, .* choose another one with haListenPort"):
        await broker.start()
    assert is_free(65535)
