"""Writes docs/configuration.md from the keys that the configuration classes declare.

Run as ``python -m docs.pages.configuration_page <file>`` (`make docs`); a test compares the file with it.
"""

import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path

from docs.pages.fixed_keys import FIXED_KEYS
from sprocket.cli.server.server_config import BROKER_CLASSES, NAMESRV_CLASSES
from sprocket.common.config import Setting, allowed_text, settings_of, value_text
from sprocket.common.rocketmq_keys import ReferenceKey, reference_keys

_HEAD = """\
# Configuration

Written by `make docs` from the declarations in the code; do not edit.

Sprocket takes RocketMQ's `.properties` files as they are: `mqbroker -c conf/broker.conf`,
`mqnamesrv -c conf/namesrv.properties`. A name that is unknown is warned about with the nearest known one; a key
of RocketMQ that is not supported here is named; a bad value stops the start with file, line, key and what is
allowed. `${user.home}`, `$ROCKETMQ_HOME` and `${ROCKETMQ_HOME}` are replaced in paths. White space around a value
is dropped.

A key marked *running* can be changed with an update request while the server runs; no other can.
The file of `-c` keeps what was changed: the keys of the request in their places or at its end, comments, other
keys and permissions as they were, the content before as `.bak`. Where it cannot be written (read-only, gone, full
disk) nothing changes, and the request is answered with SYSTEM_ERROR and the reason. RocketMQ replaces the file by
all keys without comments, and changes the running server alone where it cannot. Without `-c` a change lasts until
the server ends, and a key that the command line gives too (`--set`) has that value again at the next start; the
answer's remark says so.
"""
_TLS = """\
They stand in the server's file, among the words of `JAVA_OPT` or `JAVA_OPT_EXT` in its environment
(`-Dtls.enable=true`, as RocketMQ's scripts have them; the server's file wins), or in the file of `tls.config.file`,
which wins over both. Commands take them from the environment and that file. See [security.md](security.md).

"""
_FIXED = """\
Every other key of a name server and a broker can be changed while the server runs. RocketMQ takes an update of these,
too, but for brokerConfigPath, rocketmqHome and configBlackList; most of them then change nothing before a restart.
The keys of TLS are read again when their files change, see [security.md](security.md).
"""


def page() -> str:
    """The whole text of docs/configuration.md."""
    parts = [_HEAD]
    broker, store, tls = BROKER_CLASSES
    sections = (
        ("Name server", NAMESRV_CLASSES[0], ""),
        ("Broker", broker, ""),
        ("Store", store, ""),
        ("TLS, of name servers, brokers and clients", tls, _TLS),
    )
    for title, declaration, about in sections:
        parts += [f"\n## {title}\n\n{about}", "| Key | Default | Allowed | | Meaning |\n|---|---|---|---|---|\n"]
        defaults = declaration.__dataclass_fields__
        parts += [_row(setting, defaults[setting.field]) for setting in settings_of(declaration)]
    parts += ["\n## Keys that need a restart\n\n", _FIXED, *_fixed()]
    parts += ["\n## Keys of RocketMQ that have no effect here\n", *_unsupported()]
    return "".join(parts)


def _row(setting: Setting, declared: "Field[object]") -> str:
    unit = f" {setting.metadata['unit']}" if setting.metadata.get("unit") else ""
    running = "running" if setting.mutable else ""
    return (
        f"| `{setting.key}` | {_default(setting, declared)}{unit} | {allowed_text(setting)} "
        f"| {running} | {setting.metadata['doc']} |\n"
    )


def _default(setting: Setting, declared: "Field[object]") -> str:
    """The default as a reader anywhere would see it, not as it is on the machine that writes the page."""
    if "default_text" in setting.metadata:
        return str(setting.metadata["default_text"])
    if declared.default is not MISSING:
        value = declared.default
    elif declared.default_factory is not MISSING:
        value = declared.default_factory()
    else:
        return "(required)"
    text = value_text(value).replace(str(Path.home()), "${user.home}")
    return f"`{text}`" if text else ""


def _fixed() -> Iterator[str]:
    for reason, keys in FIXED_KEYS.items():
        names = ", ".join(f"`{key}`" for key in sorted(keys))
        yield f"\n{reason} {names}.\n"


def _unsupported() -> Iterator[str]:
    supported = {s.key for declaration in (*BROKER_CLASSES, *NAMESRV_CLASSES) for s in settings_of(declaration)}
    by_owner: dict[str, list[ReferenceKey]] = {}
    for reference in reference_keys().values():
        if reference.key not in supported:
            by_owner.setdefault(reference.owner, []).append(reference)
    for owner, keys in by_owner.items():
        names = ", ".join(f"`{reference.key}`" for reference in sorted(keys, key=lambda reference: reference.key))
        yield f"\n`{owner}`: {names}.\n"


def main() -> int:
    """Write the page to the file named by the first argument."""
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
