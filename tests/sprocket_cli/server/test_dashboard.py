"""`sprocket dashboard`, `sprocket standalone --dashboard-port`, and what is said without the extra."""

import importlib.util
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from sprocket_cli import exit_codes
from sprocket_cli.main import main
from tests.sprocket_cli.programs import BROKER_FLAGS, server


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "aiohttp" else found(name, *more)
    )
    for command in (["dashboard", "-n", "127.0.0.1:1"], ["standalone", "--dashboard-port", "0"]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == exit_codes.USAGE
        assert "pip install 'sprocket-mq[dashboard]'" in done.stderr


def test_an_access_key_needs_its_secret() -> None:
    done = CliRunner().invoke(main, ["dashboard", "-n", "127.0.0.1:1", "--access-key", "root"])
    assert done.exit_code == exit_codes.USAGE and "belong together" in done.stderr


def test_both_ways_to_serve_it(tmp_path: Path) -> None:
    own = ("--port", "0", "--namesrv-port", "0", "--dashboard-port", "0")
    with server(tmp_path, "standalone", *own, *BROKER_FLAGS[-4:]) as both:
        port = both.facts["dashboardPort"]
        assert both.facts["dashboardUrl"] == f"http://127.0.0.1:{port}/" and "proxyPort" not in both.facts
        with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            inside = answer.read().decode()
        namesrv = str(both.facts["namesrvAddr"])
        with server(tmp_path, "dashboard", "-n", namesrv, "--port", "0", "--allow-changes") as served:
            with urlopen(str(served.facts["url"]), timeout=30) as answer:
                beside = answer.read().decode()
            assert served.stop() == 0
        assert both.stop() == 0
    assert f"127.0.0.1:{both.port}" in inside and "read-only" in inside
    assert f"127.0.0.1:{both.port}" in beside and "read-only" not in beside
