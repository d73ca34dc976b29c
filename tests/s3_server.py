"""A server in this process that speaks S3: moto's."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the address of a server without buckets.

    All of moto's servers in a process have the same buckets, so what earlier ones had is removed.
    """
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _request("POST", f"{endpoint}/moto-api/reset")
        yield endpoint
    finally:
        server.stop()


def make_bucket(endpoint: str, name: str = "bucket") -> str:
    """Make a bucket; return its URL."""
    _request("PUT", f"{endpoint}/{name}")
    return f"s3://{name}"


def delete_bucket(endpoint: str, name: str = "bucket") -> None:
    """Delete an empty bucket."""
    _request("DELETE", f"{endpoint}/{name}")


def _request(method: str, url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method=method)).read()
