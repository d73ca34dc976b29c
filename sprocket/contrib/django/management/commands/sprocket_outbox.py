"""`manage.py sprocket_outbox`: `sprocket outbox` for a database of the settings."""

import os
import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError
from django.db import connections


def url_of(settings: dict[str, Any], vendor: str) -> str:
    """Return the URL of a database of Django's settings.  Raises CommandError."""
    if vendor == "sqlite":
        return f"sqlite:///{quote(str(settings['NAME']))}"
    given = {"host": settings["HOST"], "port": settings["PORT"], "user": settings["USER"]}
    given |= {"password": settings["PASSWORD"], "database": settings["NAME"]}
    options = settings["OPTIONS"]
    if vendor == "postgresql":
        given |= {name: value for name, value in options.items() if name.startswith("ssl")}
        return f"postgresql:///?{urlencode({name: value for name, value in given.items() if value})}"
    if vendor != "mysql":
        raise CommandError(f"no relay reads {vendor}; the outbox needs PostgreSQL, MySQL, MariaDB or SQLite")
    user, password, database = (quote(str(given[name] or ""), safe="") for name in ("user", "password", "database"))
    query = _tls_of(options)
    host = str(given["host"] or "")
    is_path = host.startswith("/")  # of a socket, as in Django's backend
    socket = host if is_path else options.get("unix_socket")
    if socket:
        query["unix_socket"] = socket
    elif not host:
        raise CommandError("HOST is empty: set it to 127.0.0.1, or to the path of the server's socket")
    place = "" if is_path else f"{f'[{host}]' if ':' in host else host}:{given['port'] or 3306}"
    return f"mysql://{user}:{password}@{place}/{database}?{urlencode(query)}"


def _tls_of(options: dict[str, Any]) -> dict[str, str]:
    """Return the part of a MySQL URL that is about TLS.  Raises CommandError for what the relay would do otherwise."""
    files = options.get("ssl") or {}
    if not isinstance(files, dict):
        files = {"ssl": files}
    others = {name for name in options if name.startswith(("ssl_", "read_default_"))}
    if options.get("ssl_mode") == ("VERIFY_IDENTITY" if "ca" in files else "DISABLED"):
        others.remove("ssl_mode")
    if others or (files and not {"ca"} <= set(files) <= {"ca", "cert", "key"}):
        raise CommandError(
            f"OPTIONS {', '.join(sorted(others or {'ssl'}))}: the relay takes ssl with ca (and cert, key) alone, and "
            "checks the server's name; for anything else run `sprocket outbox` with --database"
        )
    return {f"ssl_{name}": str(file) for name, file in files.items()}


class Command(BaseCommand):
    """Become `sprocket outbox` with the same arguments."""

    help = "Run `sprocket outbox ...` for a database of the settings: sprocket_outbox run -n 127.0.0.1:9876"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--using", default="default", help="alias in DATABASES (default: %(default)s)")
        parser.add_argument("words", nargs=REMAINDER, help="run, status, retry ROW or discard ROW, with their options")

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["using"]]
        # In the environment, because other users of the machine see the command line.
        os.environ["SPROCKET_OUTBOX_DATABASE"] = url_of(connection.settings_dict, connection.vendor)
        os.execv(sys.executable, [sys.executable, "-I", "-m", "sprocket_cli", "outbox", *options["words"]])
