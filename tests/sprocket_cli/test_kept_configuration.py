"""The file of -c keeps what an update request changes, whichever server was started with it."""

from pathlib import Path

import pytest

from tests.compat import wire
from tests.sprocket_cli.programs import server

UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG = 25, 318
CONTENT = {
    "broker": "brokerName=a\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\nhaListenPort=0\n# end\n",
    "namesrv": "bindAddress=127.0.0.1\nlistenPort=0\n# end\n",
}


@pytest.mark.parametrize(
    ("name", "code", "update"),
    [
        ("broker", UPDATE_BROKER_CONFIG, "traceOn=false"),
        ("namesrv", UPDATE_NAMESRV_CONFIG, "supportActingMaster=true"),
    ],
)
def test_an_update_stands_in_the_file_of_the_server(tmp_path: Path, name: str, code: int, update: str) -> None:
    file = tmp_path / "own.conf"
    file.write_text(CONTENT[name])
    # Named as seen from the working directory.
    with server(tmp_path, name, "-c", "own.conf") as process:
        answer = wire.invoke(f"127.0.0.1:{process.port}", code, {}, update.encode())
        assert (answer.code, answer.remark) == (0, None)
        assert process.stop() == 0
    assert file.read_text() == f"{CONTENT[name]}{update}\n"
