"""Decoders of what people write: filters, configuration, access control, addresses."""

import struct
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from acl.plain.accounts import parse as parse_accounts
from acl.plain.accounts import parse_credentials
from acl.remote_addresses import RemoteAddresses, parts_of
from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.filter.java_numbers import NotComparable
from broker.filter.sql_filter import SqlFilter
from broker.filter.tokens import InvalidExpression
from broker.send.intake import MessageIntake
from broker.topic.attributes import QUEUE_TYPE
from sprocket.common.config import properties
from sprocket.common.config.configuration import read, settings_of, updated
from sprocket.common.errors import ConfigError, RequestError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.command import Request
from sprocket_cli.server.server_config import (
    BROKER_CLASSES,
    CONTROLLER_CLASSES,
    NAMESRV_CLASSES,
    broker_configuration,
    controller_configuration,
    namesrv_configuration,
)
from store.config.store_config import StoreConfig
from store.queue.logic_queue import QueueType
from store.record.record import TagsCodes
from tests.fuzz.target import Target
from tests.send_headers import send_header
from tests.send_plans import send_plan

MESSAGES = (b"", b"a\x015\x02", b"a\x01x\x02b\x01true\x02", b"a\x011e400\x02b\x01\x02", b"a\x01" + b"9" * 400 + b"\x02")
SERVERS = (broker_configuration(None, None), namesrv_configuration(None), controller_configuration(None))
MUTABLE = [{s.key for held in server.objects for s in settings_of(type(held)) if s.mutable} for server in SERVERS]


def sql_filter(data: bytes) -> None:
    """A filter is refused with its reason, or gives a verdict for any properties."""
    try:
        compiled = SqlFilter(data.decode("utf-8", "replace"))
    except InvalidExpression as error:
        assert str(error)
        return
    for message in (*MESSAGES, data):
        compiled.matches(message)
        with suppress(NotComparable):
            assert compiled.evaluate(message) in (True, False, None)


def configuration_file(data: bytes) -> None:
    """A configuration file is read or refused by name."""
    for declarations in (BROKER_CLASSES, NAMESRV_CLASSES, CONTROLLER_CLASSES):
        try:
            read(declarations, properties.parse(data, "x.conf"), "x.conf")
        except ConfigError as error:
            assert "x.conf" in str(error)


def configuration_update(data: bytes) -> None:
    """An update changes keys of the allowlist or nothing; what it has set is written so that it reads back the same."""
    for server, allowed in zip(SERVERS, MUTABLE, strict=True):
        with suppress(ConfigError):
            _, changed = updated(server, data)
            assert set(changed) <= allowed
            written = properties.render(changed)
            assert {entry.key: entry.value for entry in properties.parse(written)} == changed


def property_list(data: bytes) -> None:
    """What is written is read as the same, whatever the keys and values are."""
    with suppress(ConfigError):
        pairs = {entry.key: entry.value for entry in properties.parse(data) if entry.key}
        assert {entry.key: entry.value for entry in properties.parse(properties.render(pairs))} == pairs


def accounts(data: bytes) -> None:
    """An ACL 1.0 file is read or refused by name."""
    for parse in (parse_accounts, parse_credentials):
        try:
            parse("plain_acl.yml", data)
        except ConfigError as error:
            assert str(error).startswith("plain_acl.yml")


def addresses(data: bytes) -> None:
    """An entry of a white list means something or is refused; any peer is on it or not."""
    text = data.decode("utf-8", "replace")
    peer = parts_of(text)
    with suppress(ConfigError):
        white = RemoteAddresses([text])
        for parts in (None, (10, 1, 2, 3), (0, 0, 0, 0, 0, 0, 0, 1), peer):
            white.match(parts)


# A client's batch


def _intake() -> MessageIntake:
    """An intake that knows its configuration; batches need nothing else."""
    absent: Any = None
    config = LiveConfig(SERVERS[0].of(BrokerConfig), SERVERS[0].of(StoreConfig))
    core: Any = SimpleNamespace(config=config, topics=absent, groups=absent, locks=absent)
    return MessageIntake(core, TagsCodes("1s 5s"), absent, absent)


INTAKE = _intake()
PLANS = [
    send_plan(TopicConfig("Orders", attributes=attributes), 0)
    for attributes in ({}, {QUEUE_TYPE: str(QueueType.BATCH)})
]
HOST_BYTES = bytes(8)


def batch_body(data: bytes) -> None:
    """A client's batch is taken apart without a byte left, kept as one, or refused with its reason."""
    for plan, text in zip(PLANS, ("a\x01b\x02", "UNIQ_KEY\x01u\x02"), strict=True):
        header = send_header(batch=True, properties=text)
        request: Request[Any] = Request(code=320, header=header, body=data)
        try:
            messages = INTAKE.batch(request, plan, HOST_BYTES).messages
        except RequestError as error:
            assert str(error)
            continue
        assert messages and sum(len(message.body) for message in messages) <= len(data)


MEMBER = struct.pack(">iiiii", 28, 0, 0, 0, 4) + b"body" + b"\x00\x02a\x01"
ACCOUNTS = b"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.{1,2}
accounts:
  - accessKey: Application
    secretKey: a-long-secret
    whiteRemoteAddress: 192.168.0.0/16
    admin: false
    defaultTopicPerm: DENY
    topicPerms:
      - orders=PUB|SUB
dataVersion:
  - {counter: 1}
"""
FILTERS = [
    b"a > 5 AND b = 'x' OR c IS NOT NULL",
    b"a BETWEEN 1 AND 10 AND NOT (b IN ('x', 'y'))",
    b"a + 1 > -2.5e10 OR TRUE",
    b"a CONTAINS 'x' OR b STARTSWITH 'y' OR c ENDSWITH 'z'",
    b"(" * 70 + b"a" + b")" * 70,
    b"a = 0x1F OR b = 017L",
]
TEXT_TARGETS = [
    Target("sql_filter", sql_filter, FILTERS, 400),
    Target(
        "configuration_file",
        configuration_file,
        [b"brokerName=a\nlistenPort = 10911\nbrokerRole:SYNC_MASTER\\\n\n#c\n"],
        400,
    ),
    Target(
        "configuration_update", configuration_update, [b"defaultTopicQueueNums=4\nautoCreateTopicEnable=false\n"], 400
    ),
    Target("property_list", property_list, [b"a\\u0041 b\\\n c: d\r\n! x\n=y", b"\\uD83D\\uDE00=\\uD800"], 100),
    Target(
        "accounts",
        accounts,
        [
            ACCOUNTS,
            b"accessKey: Application\nsecretKey: a-long-secret\n",
            b"a: &a [*a,*a]",
            b"? [a]\n: b",
            b"!!python/object:os.system x",
            b"<<: {a: b}",
        ],
        1000,
    ),
    Target(
        "addresses",
        addresses,
        [b"10.1.1.{1,2}", b"10.1.1-5.*", b"2::ac5:78:1-200:*", b"10.1.0.0/16", b"::ffff:10.1.2.3"],
        400,
    ),
    Target("batch_body", batch_body, [MEMBER * 3, MEMBER[:-1], struct.pack(">iiiii", 22, 0, 0, 0, 2**31 - 1)], 100),
]
