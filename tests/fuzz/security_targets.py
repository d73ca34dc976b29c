"""Files that decide who is let in: users and policies, accounts while they are written, keys of TLS."""

import shutil
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from acl.auth.document import document_of, opened_from_master, sealed_for_replica
from acl.auth.files import AuthFiles
from acl.auth.infos import acl_of
from acl.auth.model import User, UserStatus, UserType
from acl.auth.secrets import Seal, SealBroken
from acl.auth.tables import AuthContent
from acl.plain.accounts import parse
from acl.plain.files import PlainFiles
from sprocket.common.errors import ConfigError, ProtocolError, StoreError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.tls.settings import ENFORCING, TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from tests.fuzz.target import Target

# The same nonces in every run, and so the same seeds.
KEY: Final = bytes(range(32))
SEAL: Final = Seal(KEY, bytes)
POLICIES: Final = [
    PolicyInfo("Custom", [PolicyEntryInfo("Topic:orders*", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow")]),
    PolicyInfo("Default", [PolicyEntryInfo("*", ["All"], None, "Deny")]),
]
CONTENT: Final = AuthContent(
    {
        "admin": User("admin", "a-long-secret", UserType.SUPER),
        "billing": User("billing", "its-sëcret", UserType.NORMAL, UserStatus.DISABLE),
    },
    {"User:billing": acl_of(AclInfo("User:billing", POLICIES))},
)
SEALED: Final = msgspec.json.encode(document_of(CONTENT, SEAL))
IN_CLEAR: Final = msgspec.json.encode(document_of(CONTENT, None))
REPLICATED: Final = sealed_for_replica(CONTENT, SEAL)


def auth_files(data: bytes) -> None:
    """Users are read, taken from the copy before, or refused by the name of a file; what is saved reads back."""
    for has_backup in (False, True):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "auth.key").write_bytes(KEY)
            (folder / "auth.json").write_bytes(data)
            if has_backup:
                (folder / "auth.json.bak").write_bytes(SEALED)
            files = AuthFiles(folder)
            try:
                content = files.load()
            except SealBroken as error:
                assert str(error)
                continue
            except StoreError as error:
                assert name in str(error)
                continue
            files.save(content)
            assert AuthFiles(folder).load() == content
            assert not any(
                user.password.encode() in _written(folder) for user in content.users.values() if _is_long(user)
            )


def _is_long(user: User) -> bool:
    """Whether its password cannot stand in the file by chance."""
    return len(user.password) > 8 and user.password not in user.username


def _written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("auth.json*")) if folder.is_dir() else b""


def auth_key(data: bytes) -> None:
    """With another key, or none that is one, no user is let in by what it says."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "auth.json").write_bytes(SEALED)
        (Path(name) / "auth.key").write_bytes(data)
        with suppress(StoreError):
            assert AuthFiles(Path(name)).load() == CONTENT and data == KEY


def sealed(data: bytes) -> None:
    """What is sealed is opened whole, or not at all: from a file, and from a master."""
    text = data.decode("utf-8", "replace")
    with suppress(SealBroken):
        assert SEAL.opened_text(text, "User:admin") == "a-long-secret"
    with suppress(StoreError, ProtocolError):
        assert opened_from_master(data, SEAL) == CONTENT and data == REPLICATED
    # And something that is sealed with the right key, but is not a document.
    with suppress(StoreError, ProtocolError):
        opened_from_master(SEAL.sealed(data, "users and acls of a master"), SEAL)


# Accounts of ACL 1.0

GOOD_ACCOUNTS: Final = b"accounts:\n- {accessKey: Application, secretKey: a-long-secret, topicPerms: [orders=DENY]}\n"


def accounts_reload(data: bytes) -> None:
    """A file that is written piece by piece: what counts is what a whole file said, or what said it before."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "conf" / "plain_acl.yml"
        path.parent.mkdir()
        path.write_bytes(GOOD_ACCOUNTS)
        files = PlainFiles(Path(name))
        files.load()
        for part in (b"", data[: len(data) // 2], data, GOOD_ACCOUNTS + data):
            before = files.policy
            path.write_bytes(part)
            files.watch()
            assert files.policy is before  # seen once alone it counts for nothing
            files.watch()
            if files.policy is before:
                assert not part or _is_refused(str(path), part)
            else:
                assert files.policy.secrets == _secrets(str(path), part)
        path.write_bytes(GOOD_ACCOUNTS)
        files.reload()
        assert files.policy.secrets == [("Application", "a-long-secret")]


def _is_refused(name: str, content: bytes) -> bool:
    try:
        parse(name, content)
    except ConfigError as error:
        assert str(error).startswith(name)
        return True
    return content == GOOD_ACCOUNTS


def _secrets(name: str, content: bytes) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for account in parse(name, content).accounts:
        found.setdefault(account.access_key, account.secret_key)
    return list(found.items())


# TLS

# A pair that guards nothing: made for this file.
KEY_PEM: Final = b"""-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghubzE56ZjVJJr7aH
6QsTTn1PxC+aTtgT6JEtju88oLahRANCAASvgPl7lGXhW6ueMXzMrBDXo/yR6Qi7
tjG5x5gma5r+wbQJpLZKzuVL85l/5NbllsErAExaMfbCgIe/1rt4XllT
-----END PRIVATE KEY-----
"""
CERTIFICATE_PEM: Final = b"""-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUK6HSndJE5t/y0TFobEbW4BBez8MwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEZnV6ejAgFw0yNjExMjIwNTU2MjhaGA8yMTI2MTAyOTA1NTYy
OFowDzENMAsGA1UEAwwEZnV6ejBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABK+A
+XuUZeFbq54xfMysENej/JHpCLu2MbnHmCZrmv7BtAmktkrO5UvzmX/k1uWWwSsA
TFox9sKAh7/Wu3heWVOjUzBRMB0GA1UdDgQWBBSyfhcjszBEMQjfVo8FM4yjAszT
/TAfBgNVHSMEGDAWgBSyfhcjszBEMQjfVo8FM4yjAszT/TAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIGOXhLPXAPQsMGa/aA1+X6lbwu85frLIw5qv
tSI3lvUUAiEAnKu3gQceHREhO1Z/xjmXG55jytrI2sJJvfK4b1pBuc8=
-----END CERTIFICATE-----
"""
PROPERTIES: Final = """
tls.test.mode.enable = false
tls.server.need.client.auth = require
tls.server.certPath = {folder}/cert.pem
tls.server.keyPath = {folder}/key.pem
tls.server.keyPassword =
tls.server.authClient = true
tls.server.trustCertPath = {folder}/trust.pem
tls.client.certPath = {folder}/cert.pem
tls.client.keyPath = {folder}/key.pem
tls.client.authServer = true
tls.client.trustCertPath = {folder}/trust.pem
"""
NAMES: Final = ("cert.pem", "key.pem", "trust.pem")


class _Folder:
    """Files of TLS in a folder, and settings that name them."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp())
        self.restore()

    def restore(self) -> None:
        for name in NAMES:
            (self.path / name).write_bytes(KEY_PEM if name == "key.pem" else CERTIFICATE_PEM)
        self.properties(PROPERTIES.format(folder=self.path).encode())

    def properties(self, content: bytes) -> None:
        (self.path / "tls.properties").write_bytes(content)

    @property
    def settings(self) -> TlsSettings:
        return TlsSettings(server_mode=ENFORCING, enable=True, config_file=self.path / "tls.properties")

    def __enter__(self) -> "_Folder":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)


def tls_properties(data: bytes) -> None:
    """The file of TLS keys means something, or is refused with a reason; of a running server nothing is lost by it."""
    with _Folder() as folder:
        server, client = ServerTls(folder.settings), ClientTls(folder.settings)
        server.start()
        good = server.context()
        folder.properties(data.replace(b"{folder}", str(folder.path).encode()))
        server.reload()
        assert isinstance(server.context(), ssl.SSLContext)
        folder.restore()
        server.reload()
        assert server.context() is not None and good is not None
        folder.properties(data.replace(b"{folder}", str(folder.path).encode()))
        for start in (ServerTls(folder.settings).start, client.start):
            try:
                start()
            except ConfigError as error:
                assert str(error)


def tls_files(data: bytes) -> None:
    """Each of the files in turn: a new start is refused by its name, a running server keeps what it showed."""
    for name in NAMES:
        with _Folder() as folder:
            server, client = ServerTls(folder.settings), ClientTls(folder.settings)
            server.start()
            client.start()
            kept = server.context(), client.context()
            (folder.path / name).write_bytes(data)
            try:
                ServerTls(folder.settings).start()
            except ConfigError as error:
                assert str(folder.path) in str(error) and "tls.server." in str(error)
                server.reload()
                assert server.context() is kept[0]
            try:
                ClientTls(folder.settings).start()
            except ConfigError as error:
                assert str(folder.path) in str(error) and "tls.client." in str(error)
                assert client.context() is kept[1]


SECURITY_TARGETS = [
    Target(
        "auth_files",
        auth_files,
        [
            SEALED, IN_CLEAR, b'{"users":[],"acls":[]}', b'{"users":[{"username":"\xff"}]}',
            b'{"x":' + b"[" * 9000 + b"]" * 9000 + b"}",
            b'{"users":[{"username":"a","userType":"Sup\\u0065r","password":"b"}],"acls":[{"subject":"User:a"}]}',
        ],
        1000,
    ),
    Target("auth_key", auth_key, [KEY, KEY[:-1], KEY + b"\n", bytes(32)], 100),
    Target("sealed", sealed, [REPLICATED, IN_CLEAR, SEAL.sealed_text("a-long-secret", "User:admin").encode()], 400),
    Target(
        "accounts_reload",
        accounts_reload,
        [
            GOOD_ACCOUNTS.replace(b"Appl", b"Repl"),
            b"globalWhiteRemoteAddresses:\n- 10.1.*.*\naccounts:\n- accessKey: Another1\n  secretKey: 12345678\n"
            b"  topicPerms:\n  - orders=DENY\n",
        ],
        4000,
    ),
    Target(
        "tls_properties",
        tls_properties,
        [
            PROPERTIES.encode(), b"tls.server.keyPath=\\u0000\ntls.server.certPath=x", b"tls.server.certPath={folder}",
            b"tls.server.certPath=/dev/zero\ntls.server.keyPath=/dev/zero\ntls.test.mode.enable=false\n",
        ],
        2000,
    ),
    Target(
        "tls_files",
        tls_files,
        [KEY_PEM, CERTIFICATE_PEM, CERTIFICATE_PEM * 3, KEY_PEM + CERTIFICATE_PEM, CERTIFICATE_PEM[:-40]],
        4000,
    ),
]  # fmt: skip
