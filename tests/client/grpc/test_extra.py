"""grpcio is optional: `import sprocket` does not load it, and a grpc:// address without it names the extra."""

import subprocess
import sys

_PROGRAM = """
import sys
import sprocket
sprocket.connect("127.0.0.1:9876")
assert not {"grpc", "google.protobuf"} & set(sys.modules)
sys.modules["grpc"] = None
try:
    sprocket.connect("grpc://127.0.0.1:8081")
except sprocket.IllegalArgument as error:
    print(error)
"""


def test_missing_grpcio_names_the_extra() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == (
        "a grpc:// address needs grpc, which is not installed: pip install 'sprocket-mq[grpc]'"
    )
