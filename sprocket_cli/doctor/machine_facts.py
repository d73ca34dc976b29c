"""Facts of this machine and of a broker's configuration: reads, three small writes, no other change."""

import contextlib
import datetime
import os
import resource
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sprocket_cli.doctor.facts import Certificate, Local, Machine, Port, StorePlace

if TYPE_CHECKING:
    from sprocket.common.config.configuration import Configuration

_SYNCS: Final = 3
_PAGE: Final = bytes(4096)
_DAY_S: Final = 86_400


def machine() -> Machine:
    """Return the limits of this machine."""
    memory = _memory()
    # A server raises its soft limit to the hard one when it starts.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    map_count = _text(Path("/proc/sys/vm/max_map_count"))
    return Machine(
        open_files=1 << 30 if limit == resource.RLIM_INFINITY else limit,
        max_map_count=int(map_count) if map_count.isdigit() else None,
        memory_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
    )


def local(configuration: "Configuration") -> Local:
    """Return what the machine has for a broker with this configuration."""
    from broker.config.broker_config import BrokerConfig
    from sprocket.common.config import properties
    from sprocket.common.config.configuration import to_properties
    from sprocket.remoting.tls.settings import TlsSettings
    from store.config.store_config import StoreConfig

    broker, store, tls = configuration.of(BrokerConfig), configuration.of(StoreConfig), configuration.of(TlsSettings)
    ports = [("listenPort", broker.listen_port)]
    ports += [("healthPort", broker.health_port)]
    paths = [
        ("tls.server.certPath", tls.server_cert_path),
        ("tls.server.trustCertPath", tls.server_trust_cert_path),
        ("tls.client.certPath", tls.client_cert_path),
    ]
    return Local(
        keys={entry.key: entry.value for entry in properties.parse(to_properties(configuration))},
        store=_store_place(Path(store.store_path_root_dir)),
        ports=[Port(key, number, _is_taken(broker.bind_address, number)) for key, number in ports if number > 0],
        certificates=[_certificate(key, path) for key, path in paths if path is not None],
    )


def _store_place(path: Path) -> StorePlace:
    from store.inspection.file_view import is_locked

    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    stat = os.statvfs(existing)
    place = {"total_bytes": stat.f_blocks * stat.f_frsize, "free_bytes": stat.f_bavail * stat.f_frsize}
    error, sync_ms = None, None
    try:
        sync_ms = _sync_ms(existing)
    except OSError as failed:
        error = failed.strerror or str(failed)
    return StorePlace(
        str(path), file_system=_file_system(existing), error=error, sync_ms=sync_ms,
        is_in_use=is_locked(path / "lock"), **place,
    )  # fmt: skip


def _sync_ms(folder: Path) -> float:
    """Return the median time, ms, to write and sync a page of a new file in `folder`, which is removed."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".sprocket-doctor-") as file:
        for _ in range(_SYNCS):
            began = time.monotonic()
            file.write(_PAGE)
            file.flush()
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - began) * 1000)
    return statistics.median(times)


def _file_system(path: Path) -> str:
    """Return the kind of the file system that `path` lies on, as /proc/mounts names it; ``unknown`` if it does not."""
    best = ("", "unknown")
    resolved = path.resolve()
    for line in _text(Path("/proc/mounts")).splitlines():
        _, mount, kind, *_ = line.split(" ")
        if resolved.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _certificate(key: str, path: Path) -> Certificate:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        return Certificate(key, str(path), error=getattr(error, "strerror", None) or str(error))
    now = datetime.datetime.now(datetime.UTC)
    left = min((certificate.not_valid_after_utc - now).total_seconds() for certificate in found)
    return Certificate(key, str(path), days_left=left / _DAY_S)


def _memory() -> dict[str, int]:
    """Return the values of /proc/meminfo, bytes."""
    found = {}
    for line in _text(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        with contextlib.suppress(ValueError, IndexError):
            found[name] = int(rest.split()[0]) * 1024
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
