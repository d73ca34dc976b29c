"""The generated protocol is that of the definition beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FILES = ("messaging_pb2.py", "messaging_pb2.pyi")


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
        "sprocket/grpc_wire/messaging.proto",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in _FILES:
        made, kept = (_content(folder / "sprocket" / "grpc_wire" / name) for folder in (tmp_path, ROOT))
        assert made == kept, f"run {' '.join(command[1:])} with --python_out=. and --pyi_out=."


def _content(path: Path) -> list[str]:
    """The lines, without the version of the compiler."""
    lines = path.read_text().splitlines()
    return [line for line in lines if not line.startswith("# Protobuf Python Version") and not line.strip().isdecimal()]
