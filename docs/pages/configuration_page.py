"""Writer of docs/configuration.md, from the keys that the configuration classes declare.

Run as ``python -m docs.pages.configuration_page <file>`` (`make docs`); a test compares the file with it.
"""

from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path

from docs.pages.command import write
from docs.pages.fixed_keys import FIXED_KEYS, READ_ONCE
from proxy.config import ProxyConfig
from sprocket.common.config.configuration import Setting, allowed_text, settings_of, value_text
from sprocket.common.config.rocketmq_keys import ReferenceKey, reference_keys
from sprocket_cli.server.server_config import BROKER_CLASSES, CONTROLLER_CLASSES, NAMESRV_CLASSES

_HEAD = """\
# Configuration

Written by `make docs` from the declarations in the code; do not edit.

Sprocket reads RocketMQ's `.properties` files unchanged: `mqbroker -c conf/broker.conf`,
`mqnamesrv -c conf/namesrv.properties`, `mqcontroller -c conf/controller.conf`. An unknown key causes a
warning that suggests the nearest known key. A key of RocketMQ that Sprocket does not support causes a warning too. A
wrong value stops the start; the error names file, line, key and the allowed values. `${user.home}`, `$ROCKETMQ_HOME`
and `${ROCKETMQ_HOME}` are replaced in paths. White space around a value is ignored.

Only keys marked *running* can be changed by an update request while the server runs. The file of `-c` keeps the
change: the keys of the request are replaced in place or added at the end. Comments, other keys and permissions stay,
and the old content is kept as `.bak`. If the file cannot be written (read-only, deleted, full disk), nothing changes,
and the response is SYSTEM_ERROR with the reason. RocketMQ instead replaces the file by all keys without comments; if it
cannot, it changes only the running server. Without `-c`, a change lasts until the server ends. A key that is also given
on the command line (`--set`) has that value again at the next start; the remark of the response says so.
"""
_TLS = """\
Set these keys in one of three places, from the lowest to the highest priority: `JAVA_OPT` or `JAVA_OPT_EXT` in the
environment (`-Dtls.enable=true`, as in RocketMQ's scripts), the server's file, the file of `tls.config.file`. Commands
read them from the environment and from that last file. See [security.md](security.md).

"""
_CONTROLLER = """\
These keys are in the file of `mqcontroller`, or with enableControllerInNamesrv in that of the name server. The port is
that of the own peer in controllerDLegerPeers. See [failover.md](failover.md).

"""
_PROXY = """\
`mqproxy -pc rmq-proxy.json` reads these keys from one JSON object, and a broker's keys about users and refused requests
(`authenticationEnabled`, `authFailuresPerSecond` and so on). See [proxy.md](proxy.md).

"""
_FIXED = """\
Every other key of a name server, a controller and a broker can be changed while the server runs. RocketMQ also accepts
updates of these keys, except brokerConfigPath, rocketmqHome and configBlackList; most of them have no effect before a
restart. The keys of TLS are read again when their files change, see [security.md](security.md).
"""
_NO_EFFECT = """\
They are those of RocketMQ 5.3.3 and 5.5.1; each causes a warning. Of the newer ones,
`liteLagLatencyCollectEnable` and `liteLagLatencyTopK` limit what a broker notes about the oldest messages of lite
topics, which ours always knows, and `liteEvent*` are about a repeated search for their messages, which no broker of
ours needs. `*RocksDB*`, `*Rocksdb*` and `combineCQ*` are about RocksDB, which Sprocket does not use. Lists of topics
and groups are deleted without a limit (`batchDelete*MaxRate`).
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    parts = [_HEAD]
    broker, store, tls = BROKER_CLASSES
    sections = (
        ("Name server", NAMESRV_CLASSES[0], ""),
        ("Controller", CONTROLLER_CLASSES[0], _CONTROLLER),
        ("Broker", broker, ""),
        ("Store", store, ""),
        ("Proxy", ProxyConfig, _PROXY),
        ("TLS, of name servers, brokers and clients", tls, _TLS),
    )
    for title, declaration, about in sections:
        parts += [f"\n## {title}\n\n{about}", "| Key | Default | Allowed | | Meaning |\n|---|---|---|---|---|\n"]
        defaults = declaration.__dataclass_fields__
        # A proxy serves no update requests.
        changes = declaration is not ProxyConfig
        parts += [_row(setting, defaults[setting.field], changes) for setting in settings_of(declaration)]
    parts += ["\n## Keys that need a restart\n\n", _FIXED, *_fixed()]
    parts += ["\n## Keys of RocketMQ that have no effect here\n\n", _NO_EFFECT, *_unsupported()]
    return "".join(parts)


def _row(setting: Setting, declared: "Field[object]", changes: bool) -> str:
    unit = f" {setting.metadata['unit']}" if setting.metadata.get("unit") else ""
    running = "running" if setting.mutable and changes else ""
    return (
        f"| `{setting.key}` | {_default(setting, declared)}{unit} | {allowed_text(setting)} "
        f"| {running} | {setting.metadata['doc']} |\n"
    )


def _default(setting: Setting, declared: "Field[object]") -> str:
    """Return the default without values of the machine that writes the page, such as its home folder."""
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


def fixed_keys() -> set[str]:
    """Return the keys of name servers, controllers and brokers that cannot be changed while the server runs."""
    declarations = (NAMESRV_CLASSES[0], CONTROLLER_CLASSES[0], *BROKER_CLASSES[:2])
    return {setting.key for one in declarations for setting in settings_of(one) if not setting.mutable}


def _fixed() -> Iterator[str]:
    listed = {key for keys in FIXED_KEYS.values() for key in keys}
    for reason, keys in (FIXED_KEYS | {READ_ONCE: tuple(fixed_keys() - listed)}).items():
        names = ", ".join(f"`{key}`" for key in sorted(keys))
        yield f"\n{reason} {names}.\n"


def _unsupported() -> Iterator[str]:
    declarations = (*BROKER_CLASSES, *NAMESRV_CLASSES, *CONTROLLER_CLASSES, ProxyConfig)
    supported = {s.key for declaration in declarations for s in settings_of(declaration)}
    by_owner: dict[str, list[ReferenceKey]] = {}
    for reference in reference_keys().values():
        if reference.key not in supported:
            by_owner.setdefault(reference.owner, []).append(reference)
    for owner, keys in by_owner.items():
        names = ", ".join(f"`{reference.key}`" for reference in sorted(keys, key=lambda reference: reference.key))
        yield f"\n`{owner}`: {names}.\n"


if __name__ == "__main__":
    write(page())
