"""Exported traces in a real server that takes Elasticsearch's bulk requests: OpenSearch, from Maven Central."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sprocket.client.trace.encoding import TraceKind, TraceRecord
from sprocket.client.trace.export import bulk_lines
from tests.compat import maven, ports

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(900)]

_NODE = Path(__file__).parents[1] / "java" / "search" / "SearchNode.java"
_START_LIMIT_S = 300.0
_TIME_MS = 1_795_776_000_123
_RECORDS = [
    (
        TraceRecord(
            kind=TraceKind.PUB, time_ms=_TIME_MS, message_id="ID1", group="P", topic="Orders", keys="k1 k2", cost_ms=3
        ),
        "10.0.0.7",
    ),
    (
        TraceRecord(kind=TraceKind.SUB_BEFORE, time_ms=_TIME_MS + 5, message_id="ID1", group="G", request_id="R"),
        "10.0.0.8",
    ),
    # An old client's record has no time.
    (TraceRecord(kind=TraceKind.SUB_AFTER, time_ms=0, message_id="ID1", group="G", request_id="R"), "10.0.0.8"),
]


class Server:
    """OpenSearch at a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: str | None = None, kind: str = "application/json") -> Any:
        """Return the answer; with a body the request is a POST."""
        content = None if body is None else body.encode()
        request = urllib.request.Request(self._url + path, content, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    try:
        classpath = maven.search_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    port, log = ports.free_port(), tmp_path / "log"
    command = [*maven.short_java(), "-Xmx512m", "-cp", classpath, str(_NODE), str(tmp_path / "home"), str(port)]
    with (
        log.open("wb") as into,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=into, stderr=into, cwd=tmp_path) as process,
    ):
        try:
            deadline = time.monotonic() + _START_LIMIT_S
            while "started" not in log.read_text().split():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.1)
            yield Server(port)
        finally:
            process.kill()


def test_bulk_requests_are_taken_and_a_repeated_export_changes_nothing(server: Server) -> None:
    bulk = "".join(line + "\n" for line in bulk_lines(_RECORDS, "traces"))
    for outcome in ("created", "updated"):
        answer = server.ask("/_bulk?refresh=true", bulk, "application/x-ndjson")
        assert not answer["errors"], answer
        assert [item["index"]["result"] for item in answer["items"]] == [outcome] * len(_RECORDS)
    assert server.ask("/traces/_count")["count"] == len(_RECORDS)
    # The server has found out by itself that this is a time: dashboards filter by it.
    properties = server.ask("/traces/_mapping")["traces"]["mappings"]["properties"]
    assert properties["@timestamp"]["type"] == "date"
    query = {"query": {"range": {"@timestamp": {"gt": _TIME_MS, "format": "epoch_millis"}}}}
    found = server.ask("/traces/_search", json.dumps(query))["hits"]["hits"]
    assert [hit["_source"]["type"] for hit in found] == ["SubBefore"]
