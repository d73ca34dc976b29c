"""The file of a replicator, and its start."""

import socket
from pathlib import Path

import pytest

from replicate.config import Config, load_config
from replicate.service import Replication
from sprocket.common.clock import SystemClock


def test_relative_paths_start_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "replication.toml"
    file.write_text(
        'links = []\n[clusters.east]\nnamesrv = "a:1"\ntoken-file = "east.token"\ntls-config = "/tls"\n'
        '[clusters.west]\nnamesrv = "b:1"\n'
    )
    monkeypatch.chdir(tmp_path)
    clusters = load_config(Path("conf/replication.toml")).clusters
    assert clusters["east"].token_file == str(tmp_path / "conf" / "east.token")
    assert (clusters["east"].tls_config, clusters["west"].tls_config) == ("/tls", "")


async def test_a_taken_port_of_metrics_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config({}, (), metrics_port=taken.getsockname()[1])
        replication = Replication(config, "second", SystemClock())
        await replication.start()
        await replication.stop()
    assert "event=metrics_not_exported" in caplog.text
    assert replication.export.port is None
