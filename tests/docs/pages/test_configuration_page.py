"""docs/configuration.md is what the declarations say, and every sample in conf/ can be started with."""

from pathlib import Path

import pytest

from controller.config import ControllerConfig
from docs.pages.configuration_page import fixed_keys, page
from docs.pages.fixed_keys import FIXED_KEYS
from sprocket.common.config.configuration import settings_of
from sprocket.common.config.rocketmq_keys import reference_keys
from sprocket_cli.server.server_config import (
    broker_configuration,
    controller_configuration,
    namesrv_configuration,
)

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = sorted(path for path in (ROOT / "conf").rglob("*") if path.suffix in {".conf", ".properties"})


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"


def test_page_does_not_show_the_machine_it_was_written_on() -> None:
    assert str(Path.home()) not in page()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sample_starts_without_a_warning(sample: Path) -> None:
    if sample.name.startswith("namesrv"):
        configuration = namesrv_configuration(sample)
    elif sample.name.startswith("controller"):
        configuration = controller_configuration(sample)
        configuration.of(ControllerConfig).require()
    else:
        configuration = broker_configuration(sample, None)
    assert configuration.notices == ()


def test_every_reason_for_a_restart_is_of_a_key_that_needs_one() -> None:
    listed = [key for keys in FIXED_KEYS.values() for key in keys]
    assert len(listed) == len(set(listed))
    assert set(listed) <= fixed_keys()


def test_every_key_that_needs_a_restart_is_on_the_page_with_its_reason() -> None:
    fixed = page().partition("## Keys that need a restart")[2].partition("\n## ")[0]
    assert all(f"`{key}`" in fixed for key in fixed_keys())


def test_every_declared_default_is_that_of_rocketmq() -> None:
    """Where a default differs on purpose, the difference is listed here with its reason."""
    differs = {
        # RocketMQ's start sets these two over the class's default (`BrokerStartup`).
        "listenPort",
        "haListenPort",
        # A CRC of the body alone leaves damage to a record's offsets, times, topic and properties unseen.
        "enabledAppendPropCRC",
        # RocketMQ's getter makes this path of the class's empty default.
        "controllerStorePath",
    }
    reference = reference_keys()
    for configuration in (
        broker_configuration(None, None),
        namesrv_configuration(None),
        controller_configuration(None),
    ):
        for held in configuration.objects:
            for setting in settings_of(type(held)):
                known = reference.get(setting.key)
                if known is None or setting.key in differs or "<" in known.default or "$" in known.default:
                    continue
                value = getattr(held, setting.field)
                text = "" if value is None else str(getattr(value, "name", value))
                expected = known.default
                assert text.lower() == expected.lower(), f"{setting.key}: {text}, RocketMQ has {expected}"
