"""Django's tables in MariaDB: the migration, a write to the outbox, and the URL that the relay gets."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sprocket.outbox.database import mysql_arguments
from tests.client.deduplication.databases import DatabaseMissingError, MariaDb

pytest.importorskip("django", reason="Django is not installed: pip install 'sprocket-mq[django]'")

# Django asks for mysqlclient, which needs a compiler.  PyMySQL acts as one, and has to say a version that Django takes.
_SETTINGS = """
import pymysql
pymysql.version_info = (2, 2, 8, "final", 0)
pymysql.install_as_MySQLdb()
SECRET_KEY = "of tests"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "sprocket.contrib.django"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.mysql", "NAME": "shop", "USER": "root", "HOST": "{socket}"}}}}
"""
_WRITES = """
import asyncio, django
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
from sprocket import Message
from sprocket.contrib.django import outbox
from sprocket.contrib.django.management.commands.sprocket_outbox import url_of
from sprocket.outbox.database import open_database

call_command("migrate", verbosity=0)
with transaction.atomic():
    for key in ("k", "K"):
        outbox.add(Message("Orders", b"placed"), key=key)

async def relay():
    database = open_database(url_of(connection.settings_dict, connection.vendor))
    await database.create()
    print(len(await database.claim(100, 10, 1)), len(await database.claim(100, 10, 9)))
    await database.close()

asyncio.run(relay())
call_command("migrate", "sprocket", "zero", verbosity=0)
print([name for name in connection.introspection.table_names() if name.startswith("sprocket")])
"""


def url(**settings: object) -> str:
    """Return the URL that the relay gets of these settings."""
    from sprocket.contrib.django.management.commands.sprocket_outbox import url_of

    given = {"HOST": "db", "PORT": "", "USER": "shop", "PASSWORD": "", "NAME": "shop", "OPTIONS": {}}
    return url_of(given | settings, "mysql")


def test_the_relay_gets_the_place_and_the_tls_of_the_settings() -> None:
    assert url(HOST="::1") == "mysql://shop:@[::1]:3306/shop?"
    assert mysql_arguments(url(HOST="::1"))["host"] == "::1"
    checked = {"ssl": {"ca": "/ca.pem"}, "ssl_mode": "VERIFY_IDENTITY"}
    assert url(OPTIONS=checked) == "mysql://shop:@db:3306/shop?ssl_ca=%2Fca.pem"
    assert url(HOST="", OPTIONS={"unix_socket": "/s", "ssl_mode": "DISABLED"}).endswith("?unix_socket=%2Fs")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"HOST": ""}, "HOST is empty"),
        ({"OPTIONS": {"ssl_mode": "REQUIRED"}}, "OPTIONS ssl_mode"),
        ({"OPTIONS": {"ssl": {"cert": "c.pem"}}}, "OPTIONS ssl:"),
        ({"OPTIONS": {"ssl": True}}, "OPTIONS ssl:"),
        ({"OPTIONS": {"read_default_file": "/etc/my.cnf"}}, "OPTIONS read_default_file"),
    ],
)
def test_what_the_relay_would_do_otherwise_is_refused(settings: dict[str, Any], message: str) -> None:
    from django.core.management.base import CommandError

    with pytest.raises(CommandError, match=message):
        url(**settings)


def test_the_tables_are_made_and_dropped_and_the_relay_finds_its_rows(tmp_path: Path) -> None:
    try:
        server = MariaDb()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    with server:
        server.create("shop")
        (tmp_path / "of_mysql.py").write_text(_SETTINGS.format(socket=server.socket))
        own = os.environ | {"DJANGO_SETTINGS_MODULE": "of_mysql", "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", _WRITES], env=own, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["1 1", "[]"], done.stderr
