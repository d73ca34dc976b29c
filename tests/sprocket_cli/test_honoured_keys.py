"""A key that is declared is one that some code reads: no setting is accepted and then forgotten."""

import re
from pathlib import Path

import pytest

from sprocket.common.config.configuration import Setting, settings_of
from sprocket_cli.server.server_config import BROKER_CLASSES, CONTROLLER_CLASSES, NAMESRV_CLASSES

ROOT = Path(__file__).resolve().parents[2]
CLASSES = (*NAMESRV_CLASSES, *CONTROLLER_CLASSES, *BROKER_CLASSES)
SETTINGS = [setting for declaration in CLASSES for setting in settings_of(declaration)]


def _sources() -> str:
    folders = (
        "namesrv",
        "controller",
        "sprocket_cli/server",
        "broker",
        "store",
        "sprocket/remoting",
        "sprocket/metrics",
        "acl",
    )
    return "\n".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))


SOURCES = _sources()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.owner.__name__}.{setting.key}")
def test_declared_key_is_read_somewhere(setting: Setting) -> None:
    assert re.search(rf"\.{setting.field}\b", SOURCES), f"{setting.key} is declared and never read"
