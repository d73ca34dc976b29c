"""A name server counts the requests that it refuses by reason, and logs the counts now and then."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.namesrv.site import Site, site_at
from tests.waiting import until

LIST = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@pytest.mark.parametrize(
    ("changes", "code", "expected", "reason"),
    [
        ({}, RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST, Reason.TOPIC_NOT_EXIST),
        (
            {"need_wait_for_service": True},
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            ResponseCode.SYSTEM_ERROR,
            Reason.NOT_READY,
        ),
        ({"enable_all_topic_list": False}, LIST, ResponseCode.SYSTEM_ERROR, Reason.TURNED_OFF),
        ({}, RequestCode.PULL_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, Reason.CODE_NOT_SUPPORTED),
        ({}, RequestCode.REGISTER_BROKER, ResponseCode.SYSTEM_ERROR, Reason.INVALID_HEADER),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_refused_request_is_counted_once(
    tmp_path: Path, changes: dict[str, Any], code: RequestCode, expected: ResponseCode, reason: Reason
) -> None:
    async with site_at(tmp_path, **changes) as site:
        if code is RequestCode.GET_ROUTEINFO_BY_TOPIC:
            await site.route("unknown", expect=expected)
        else:
            await site.ask(code, expect=expected)
        assert site.server.routes.refusals.by_reason == {reason: 1}


async def test_what_is_served_is_not_counted(site: Site) -> None:
    await site.ask(LIST)
    assert site.server.routes.refusals.by_reason == {}


async def test_counts_that_grew_are_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [text for text in caplog.messages if text.startswith("event=requests_refused")]

    caplog.set_level("INFO")
    async with site_at(tmp_path, scan_not_active_broker_interval=10) as site:
        await site.route("unknown", expect=ResponseCode.TOPIC_NOT_EXIST)
        await until(lambda: len(lines()) == 1)
        await site.route("unknown", expect=ResponseCode.TOPIC_NOT_EXIST)
        site.clock.advance(59)
        await asyncio.sleep(0.1)  # several scans
        assert len(lines()) == 1
        site.clock.advance(1)
        await until(lambda: len(lines()) == 2)
    assert lines() == ["event=requests_refused topic_not_exist=1", "event=requests_refused topic_not_exist=2"]
