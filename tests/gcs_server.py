"""A server in this process that speaks the part of Google Cloud Storage's XML API that clients of an archive use.

fake-gcs-server has no puts of it, and Google's testbench neither ETags nor lists nor uploads in parts.  Objects have
generations, and a put with ``x-goog-if-generation-match`` is judged by them (0: there is no object).  Buckets need not
be made.
Source: https://cloud.google.com/storage/docs/xml-api/reference-headers and its pages of methods.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DATE = formatdate(1_700_000_000, usegmt=True)


class _Stored(NamedTuple):
    content: bytes
    generation: int

    @property
    def headers(self) -> dict[str, str]:
        e_tag = hashlib.md5(self.content, usedforsecurity=False).hexdigest()
        return {"ETag": f'"{e_tag}"', "x-goog-generation": str(self.generation), "Last-Modified": _DATE}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.objects: dict[str, _Stored] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.generation = 1_000

    def store(self, key: str, content: bytes, condition: str | None = None) -> _Stored | None:
        """Store an object; None if there is another generation than `condition`."""
        with self.lock:
            found = self.objects.get(key)
            if condition is not None and int(condition) != (0 if found is None else found.generation):
                return None
            self.generation += 1
            self.objects[key] = _Stored(content, self.generation)
            return self.objects[key]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        return

    def _place(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path.lstrip("/")), asked

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        (key, asked), content = self._place(), self._body()
        if "uploadId" in asked:
            self.server.uploads[asked["uploadId"]][int(asked["partNumber"])] = content
            self._answer(200, {"ETag": f'"part-{asked["partNumber"]}"'})
            return
        stored = self.server.store(key, content, self.headers.get("x-goog-if-generation-match"))
        self._answer(412) if stored is None else self._answer(200, stored.headers)

    def do_POST(self) -> None:
        (key, asked), body = self._place(), self._body()
        if "uploads" in asked:
            upload = f"upload-{len(self.server.uploads)}"
            self.server.uploads[upload] = {}
            xml = f"<Bucket>b</Bucket><Key>k</Key><UploadId>{upload}</UploadId>"
            self._answer(200, body=f"<InitiateMultipartUploadResult>{xml}</InitiateMultipartUploadResult>".encode())
            return
        parts = self.server.uploads.pop(asked["uploadId"])
        numbers = map(int, re.findall(rb"<PartNumber>(\d+)</PartNumber>", body))
        stored = self.server.store(key, b"".join(parts[number] for number in numbers))
        assert stored is not None
        xml = f"<ETag>{stored.headers['ETag']}</ETag>"
        self._answer(
            200, stored.headers, f"<CompleteMultipartUploadResult>{xml}</CompleteMultipartUploadResult>".encode()
        )

    def do_GET(self) -> None:
        key, asked = self._place()
        if "list-type" in asked:
            self._list(key, asked.get("prefix", ""))
            return
        stored = self.server.objects.get(key)
        if stored is None:
            self._answer(404)
            return
        content, asked_range = stored.content, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked_range is None:
            self._answer(200, stored.headers | {"Content-Length": str(len(content))}, content)
            return
        first, last = int(asked_range[1]), int(asked_range[2] or len(content) - 1)
        if first >= len(content):
            self._answer(416)
            return
        part = content[first : last + 1]
        place = {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"}
        self._answer(206, stored.headers | place, part)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self.server.lock:
            found = self.server.objects.pop(self._place()[0], None)
        self._answer(404 if found is None else 204)

    def _list(self, bucket: str, prefix: str) -> None:
        begin = f"{bucket.rstrip('/')}/"
        found = sorted(self.server.objects.items())
        entries = "".join(
            f"<Contents><Key>{escape(key.removeprefix(begin))}</Key><Size>{len(one.content)}</Size>"
            f"<LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>{one.headers['ETag']}</ETag></Contents>"
            for key, one in found
            if key.startswith(begin + prefix)
        )
        self._answer(
            200, body=f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        )


@contextmanager
def gcs_server() -> Iterator[dict[str, str]]:
    """Yield the environment in which clients of Google Cloud Storage talk to a server without objects."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {"GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_port}", "GOOGLE_BEARER_TOKEN": "any"}
    finally:
        server.shutdown()
        server.server_close()
