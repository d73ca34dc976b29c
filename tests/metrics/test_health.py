"""Liveness and readiness over HTTP."""

import asyncio
import json

import pytest

from sprocket.common.errors import ConfigError
from sprocket.metrics.health import Condition, HealthPage, HealthSettings, readiness


async def get(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def test_a_condition_that_raises_or_is_missing_does_not_hold() -> None:
    assert readiness({}) == (False, {})
    assert readiness({"disk": lambda: None}) == (True, {"disk": "UP"})

    def broken() -> str | None:
        raise OSError("gone")

    is_ready, checks = readiness({"disk": broken, "role": lambda: "no master"})
    assert not is_ready
    assert "gone" in checks["disk"]
    assert checks["role"] == "no master"


async def test_the_pages_say_what_the_conditions_say() -> None:
    state: list[str | None] = ["recovers"]
    conditions: dict[str, Condition] = {"recovered": lambda: state[0]}
    page = HealthPage(HealthSettings(health_port=0, health_host="127.0.0.1"), "", conditions)
    await page.start()
    try:
        assert (await get(page.port, "/health/live"))[0] == 200
        status, body = await get(page.port, "/health/ready")
        assert (status, json.loads(body)) == (503, {"status": "DOWN", "checks": {"recovered": "recovers"}})
        state[0] = None
        assert (await get(page.port, "/health/ready?x=1"))[0] == 200
        assert await get(page.port, "/health/ready", "HEAD") == (200, b"")
        assert (await get(page.port, "/health/ready", "POST"))[0] == 405
        assert (await get(page.port, "/metrics"))[0] == 404
        taken = HealthPage(HealthSettings(health_port=page.port, health_host="127.0.0.1"), "", conditions)
        with pytest.raises(ConfigError, match="Change healthHost or healthPort"):
            await taken.start()
    finally:
        page.close()
