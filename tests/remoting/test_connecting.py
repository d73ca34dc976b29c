"""What a client says of a server that it cannot reach."""

import asyncio
import socket

import pytest

from sprocket.remoting.client import ConnectFailed, ConnectionRefused, RemotingClient
from tests.compat.ports import free_port


async def test_nothing_listens() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefused, match=f"^connect to 127.0.0.1:{port}: connection refused$") as refused:
        await RemotingClient().channel(f"127.0.0.1:{port}")
    assert refused.value.address == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed"),
            None,
        ),
        (OSError("Multiple exceptions: [Errno 101] Connect call failed, [Errno 111] Connect call failed"), "Errno 101"),
        (OSError(113, "Connect call failed ('10.0.0.1', 1)"), "Errno 113"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "connect to broker:1: Name or service"),
    ],
    ids=["both addresses refuse", "one refuses", "unreachable", "unknown name"],
)
async def test_reasons(error: OSError, said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio joins the errors of a name's addresses in the text of one."""

    async def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(ConnectFailed, match=said or "connection refused") as failed:
        await RemotingClient().channel("broker:1")
    assert isinstance(failed.value, ConnectionRefused) == (said is None)
