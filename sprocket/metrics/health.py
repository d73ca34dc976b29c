"""Liveness and readiness over HTTP, for Kubernetes, load balancers and systemd.

``/health/live`` responds if the event loop turns: the response itself is the proof.  ``/health/ready`` responds with
200 if every condition holds, else with 503; its body names each condition.  A condition reads what the server knows
already: it never waits, and asks nobody.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sprocket.common.config.setting_fields import int_setting, text_setting
from sprocket.metrics.http_page import HttpServer, message, page_host

# Returns None if the condition holds, else why not.
Condition = Callable[[], str | None]
LIVE: Final = b"/health/live"
READY: Final = b"/health/ready"
_JSON: Final = "application/json"


@dataclass(frozen=True)
class HealthSettings:
    """Where a server tells its health."""

    health_port: int = int_setting(
        -1, "Port of /health/live and /health/ready over HTTP; 0 means a free port, -1 none.", -1, maximum=65535
    )
    health_host: str = text_setting(
        "",
        "Address to serve /health/live and /health/ready on; the empty text means bindAddress, or 127.0.0.1 where "
        "that is all addresses.",
    )


def readiness(conditions: Mapping[str, Condition]) -> tuple[bool, dict[str, str]]:
    """Return whether all conditions hold, and for each ``UP`` or why it does not.

    A condition that raises does not hold.  Without conditions the server is still starting.
    """
    found = {}
    for name, condition in conditions.items():
        try:
            found[name] = condition() or "UP"
        except Exception as error:  # a probe must get a response, whatever state the server is in
            found[name] = f"unknown: {error!r}"
    return bool(found) and all(text == "UP" for text in found.values()), found


class HealthPage(HttpServer):
    """Server of both pages.  `conditions` decide on readiness; `bind_address` is the watched server's."""

    def __init__(self, settings: HealthSettings, bind_address: str, conditions: Mapping[str, Condition]) -> None:
        host = page_host(settings.health_host, bind_address)
        super().__init__("health", host, settings.health_port, ("healthHost", "healthPort"))
        self._conditions = conditions

    async def respond(self, path: bytes, fields: bytes, *, with_body: bool) -> bytes:
        if path == LIVE:
            return _page(b"200 OK", {"status": "UP"}, with_body=with_body)
        if path != READY:
            return message(b"404 Not Found", "health is at /health/live and /health/ready\n")
        is_ready, checks = readiness(self._conditions)
        status = b"200 OK" if is_ready else b"503 Service Unavailable"
        return _page(status, {"status": "UP" if is_ready else "DOWN", "checks": checks}, with_body=with_body)


def _page(status: bytes, document: dict[str, object], *, with_body: bool) -> bytes:
    return message(status, json.dumps(document) + "\n", content_type=_JSON, with_body=with_body)
