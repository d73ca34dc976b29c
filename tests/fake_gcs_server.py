"""fake-gcs-server, an emulator of Google Cloud Storage, if it is installed.

``go install github.com/fsouza/fake-gcs-server@v1.56.1``; ``SPROCKET_FAKE_GCS`` may name its command.  Its XML API,
which the archive's client speaks, reads, lists and deletes.  A put is answered 400 "invalid uploadType", so a test puts
objects by its JSON API.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from tests.compat.ports import free_broker_port

_START_S = 30.0


@contextmanager
def fake_gcs_server() -> Iterator[str]:
    """Yield the address of a server with the bucket ``bucket``."""
    command = shutil.which(os.environ.get("SPROCKET_FAKE_GCS", "fake-gcs-server"))
    if command is None:
        pytest.skip("fake-gcs-server is not installed: go install github.com/fsouza/fake-gcs-server@v1.56.1")
    place = f"127.0.0.1:{free_broker_port()}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", place.rpartition(":")[2]]
    process = subprocess.Popen([command, *options, "-public-host", place, "-log-level", "error"])
    try:
        _make_bucket(f"http://{place}", process)
        yield f"http://{place}"
    finally:
        process.terminate()
        process.wait()


def put_object(address: str, key: str, content: bytes) -> None:
    """Put an object into the bucket."""
    _post(f"{address}/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(key, safe='')}", content)


def _make_bucket(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Make the bucket as soon as the server answers."""
    ends_s = time.monotonic() + _START_S
    while True:
        try:
            _post(f"{address}/storage/v1/b?project=test", json.dumps({"name": "bucket"}).encode())
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            assert process.poll() is None, "fake-gcs-server ended"
            assert time.monotonic() < ends_s, "fake-gcs-server does not answer"
            time.sleep(0.1)
        else:
            return


def _post(url: str, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, content, headers, method="POST")).read()
