"""What the README says to type and to write works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.sprocket_cli.conftest import Cluster

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_example_sends_and_receives(cluster: Cluster) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    program = example.replace("127.0.0.1:9876", cluster.namesrv)
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    sent, received = ended.stdout.splitlines()
    assert sent.startswith("SendResult(SEND_OK")
    assert received == "b'hello'"


def test_links_lead_somewhere() -> None:
    root = Path(__file__).resolve().parents[2]
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (root / target).exists(), target
