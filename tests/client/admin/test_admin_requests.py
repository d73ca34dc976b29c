"""Requests of the administration client that a master without its lease refuses."""

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.common.errors import LeaseEnded, NoLease
from sprocket.remoting.client import RemotingClient, RemotingTimeout
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse


async def failure(monkeypatch: pytest.MonkeyPatch, *remarks: str) -> tuple[str, list[float]]:
    """Return the error for a request that is refused with these remarks in turn, and the timeouts of its repeats.

    After the last remark the server is silent.
    """
    left, timeouts_s = list(remarks), list[float]()

    async def invoke(_client: RemotingClient, *_: object, timeout_s: float) -> ReceivedResponse:
        timeouts_s.append(timeout_s)
        if not left:
            raise RemotingTimeout("no response")
        return ReceivedResponse(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=left.pop(0))

    monkeypatch.setattr(RemotingClient, "invoke", invoke)
    async with AdminClient("127.0.0.1:1", timeout_s=60.0) as admin:
        with pytest.raises(AdminError) as raised:
            await admin.ask("127.0.0.1:2", RequestCode.TRIGGER_SCHEDULE)
    return str(raised.value), timeouts_s


async def test_a_repeat_gets_what_is_left_of_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    text, (first, second, third) = await failure(monkeypatch, str(NoLease()), str(NoLease()))
    assert first == 60.0 > second > third
    assert "no response" in text and str(NoLease()) in text


async def test_what_may_have_been_done_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text, timeouts_s = await failure(monkeypatch, str(LeaseEnded()))
    assert "may have been done" in text and timeouts_s == [60.0]
