"""Azurite, Microsoft's emulator of Azure Blob Storage, if it is installed: ``npm install -g azurite``.

``SPROCKET_AZURITE`` may name its command ``azurite-blob``.
"""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from tests.compat.ports import free_broker_port

ACCOUNT = "devstoreaccount1"
# Published by Microsoft, the same everywhere.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_START_S = 30.0


@contextmanager
def azurite() -> Iterator[dict[str, str]]:
    """Yield the environment in which clients of Azure talk to a server with the container ``bucket``."""
    command = shutil.which(os.environ.get("SPROCKET_AZURITE", "azurite-blob"))
    if command is None:
        pytest.skip("Azurite is not installed: npm install -g azurite")
    port = str(free_broker_port())
    arguments = ["--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"]
    process = subprocess.Popen([command, "--blobHost", "127.0.0.1", "--blobPort", port, *arguments])
    try:
        address = f"http://127.0.0.1:{port}"
        _make_container(address, process)
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": address}
    finally:
        process.terminate()
        process.wait()


def _make_container(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Make the container as soon as the server answers."""
    ends_s = time.monotonic() + _START_S
    while True:
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        place = f"/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
        text = "\n".join(["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items()), place])
        signature = hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        url = f"{address}/{ACCOUNT}/bucket?restype=container"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).read()
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            assert process.poll() is None, "Azurite ended"
            assert time.monotonic() < ends_s, "Azurite does not answer"
            time.sleep(0.1)
        else:
            return
