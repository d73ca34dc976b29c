"""The gate by itself: header tricks, messages that reach further topics, failures, the audit log."""

import json
import logging
from collections.abc import Mapping

import pytest

from acl.access_request import AccessRequest, FailedAttempt, Verdict
from acl.auth.model import Action, Resource
from acl.auth.requests import required
from acl.gate import Gate, require_topic
from acl.gate_settings import GateSettings
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from sprocket.common.errors import RequestError
from sprocket.common.revision import Revision
from sprocket.remoting.codec import codec_binary
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON, ROCKETMQ, frame_prefix
from sprocket.remoting.headers.admin import ViewMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.routes import Action as RouteAction
from sprocket.remoting.routes import NoHeader, Route
from sprocket.remoting.routes import Resource as RouteResource
from tests.acl.matrix import Doors, shape
from tests.clock import ManualClock

WRITER = Credentials("SomeWriter", "secret-of-writer")
ACCOUNTS = b"""
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
  - accessKey: SomeWriter
    secretKey: secret-of-writer
    topicPerms: [Mine=PUB|SUB, "%LMQ%mine=PUB"]
    groupPerms: [G=SUB]
  - {accessKey: AnyWriter1, secretKey: secret-of-any, defaultTopicPerm: PUB|SUB, topicPerms: [Theirs=DENY]}
"""
POLICY = PlainPolicy({"f": parse("f", ACCOUNTS)})
SEND = Route(
    RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, lambda request: None, RouteResource.TOPIC, RouteAction.PUB
)
VIEW = Route(
    RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, lambda request: None, RouteResource.TOPIC, RouteAction.GET
)
FIELDS = dict(shape(SEND).fields)


def doors(clock: ManualClock | None = None, policy: object = POLICY, **settings: int | bool) -> Doors:
    gate = Gate([policy], GateSettings(**settings), clock or ManualClock(), cluster="c")  # type: ignore[list-item,arg-type]
    return Doors([SEND, VIEW], gate.stand_before)


def json_frame(text: str, body: bytes = b"") -> bytes:
    header = text.encode()
    return frame_prefix(JSON, len(header), len(body)) + header + body


def members(fields: Mapping[str, object]) -> str:
    return json.dumps(fields)[1:-1]


def framed(fields: str, head: str = '"code":310', body: bytes = b"") -> bytes:
    return json_frame("{" + head + ',"extFields":{' + fields + "}}", body)


# What is served is what was authorised


async def test_of_a_field_given_twice_the_one_that_is_judged_is_served() -> None:
    door = doors()
    for first, last, is_served in (("Theirs", "Mine", True), ("Mine", "Theirs", False)):
        signed = WRITER.signed({**FIELDS, "b": last}, b"x")
        outcome = door.send(framed(f'"b":"{first}",{members(signed)}', body=b"x"))
        assert outcome.served is is_served
        if is_served:
            assert door.served[0].header.topic == last
        pieces = codec_binary.encode_map({"b": first}) + codec_binary.encode_map(signed)
        header = codec_binary.encode_header(310, 7, 0, None, None)[:-4] + len(pieces).to_bytes(4, "big") + pieces
        outcome = door.send(frame_prefix(ROCKETMQ, len(header), 1) + header + b"x")
        assert outcome.served is is_served


@pytest.mark.parametrize("name", ["topic", "B", "Topic", " b", "b ", "b\u0000"])
async def test_another_spelling_of_a_field_is_another_field(name: str) -> None:
    door = doors()
    fields = {**FIELDS, "b": "Theirs", name: "Mine"}
    for serialization in (JSON, ROCKETMQ):
        assert not door.ask(310, WRITER.signed(fields, b"x"), b"x", serialization).served
    fields = {**FIELDS, "b": "Mine", name: "Theirs"}
    for serialization in (JSON, ROCKETMQ):
        assert door.ask(310, WRITER.signed(fields, b"x"), b"x", serialization).served
        assert door.served[0].header.topic == "Mine"


async def test_numbers_are_the_texts_that_are_signed() -> None:
    door = doors()
    signed = WRITER.signed({**FIELDS, "b": "Mine"}, b"")
    numbers: dict[str, object] = {**signed, "e": 0, "k": False}
    assert door.send(framed(members(numbers), '"code":"310"')).served
    (request,) = door.served
    assert (request.code, request.header.queue_id, request.header.unit_mode) == (310, 0, False)
    assert not door.send(framed(members({**signed, "e": 1}))).served


@pytest.mark.parametrize(
    "text",
    [
        '{"code":310,"extFields":null}',
        '{"code":310}',
        '{"code":310,"extFields":{}}',
        '{"code":310,"extFields":{"b":null}}',
        '{"code":310,"extFields":{},"#access":{"a":1},"#channel":1}',
        '{"code":310,"flag":0,"extFields":{"AccessKey":"SomeWriter","Signature":null}}',
    ],
)
async def test_headers_without_what_has_to_be_there_are_refused(text: str) -> None:
    outcome = doors().send(json_frame(text))
    assert not outcome.served and outcome.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "text",
    [
        '{"code":310,"extFields":{"b":{"topic":"Mine"}}}',
        '{"code":310,"extFields":[]}',
        '{"code":310,"extFields":"b"}',
        '{"code":4294967606,"extFields":{}}',
        '{"code":310.5}',
        "[]",
        "{",
        "",
    ],
)
async def test_what_is_no_header_ends_the_connection(text: str) -> None:
    door = doors()
    assert not door.send(json_frame(text)).answers
    assert door.is_closed and not door.served


async def test_a_code_is_the_same_beyond_16_bits_or_none() -> None:
    door = doors()
    signed = WRITER.signed({**FIELDS, "b": "Mine"}, b"")
    for code in (65536 + 310, -(65536 - 310)):
        assert not door.ask(code, signed, b"", JSON).served
        # A ROCKETMQ header has only the low 16 bits.
        assert door.ask(code, signed, b"", ROCKETMQ).served
        assert door.served[0].code == 310


async def test_an_answer_is_no_request() -> None:
    door = doors()
    signed = WRITER.signed({**FIELDS, "b": "Mine"}, b"")
    for flag in (1, 3):
        outcome = door.send(framed(members(signed), f'"code":310,"flag":{flag},"opaque":5'))
        assert not outcome.served and not outcome.answers
    assert not door.is_closed
    oneway = door.send(framed(members(signed), '"code":310,"flag":2'))
    assert oneway.served and not oneway.answers


# Messages that reach further topics than their own


def sent(properties: str, body: bytes = b"x", account: Credentials = WRITER, **fields: str) -> bool:
    signed = account.signed({**FIELDS, "b": "Mine", "i": properties, **fields}, body)
    outcomes = {doors().ask(310, signed, body, serialization).served for serialization in (JSON, ROCKETMQ)}
    assert len(outcomes) == 1
    return outcomes.pop()


@pytest.mark.parametrize(
    ("properties", "is_served"),
    [
        ("TAGS\x01a\x02", True),
        ("INNER_MULTI_DISPATCH\x01%LMQ%mine\x02", True),
        ("INNER_MULTI_DISPATCH\x01%LMQ%theirs\x02", False),
        ("INNER_MULTI_DISPATCH\x01%LMQ%mine,%LMQ%theirs\x02", False),
        ("INNER_MULTI_DISPATCH\x01%LMQ%theirs\x02INNER_MULTI_DISPATCH\x01%LMQ%mine\x02", False),
        ("INNER_MULTI_DISPATCH\x01%LMQ%mine\x02INNER_MULTI_DISPATCH\x01%LMQ%theirs", False),
        ("TIMER_DEL_UNIQKEY\x01Mine+0A00\x02", True),
        ("TIMER_DEL_UNIQKEY\x01Theirs+0A00\x02", False),
        ("REAL_TOPIC\x01Theirs\x02", True),  # which the broker overwrites wherever it has a meaning
    ],
)
async def test_properties_carry_no_message_where_its_sender_has_no_right(properties: str, is_served: bool) -> None:
    assert sent(properties) is is_served


async def test_nor_do_those_of_the_messages_in_a_batch() -> None:
    inner = b"\0" * 20 + b"INNER_MULTI_DISPATCH\x01%LMQ%theirs\x02"
    assert not sent("TAGS\x01a\x02", inner, m="true")
    assert not sent("TAGS\x01a\x02", inner, m="1")
    assert sent("TAGS\x01a\x02", inner, m="false")  # then it is an ordinary body


async def test_topics_in_which_brokers_keep_messages_are_for_admins() -> None:
    anybody = Credentials("AnyWriter1", "secret-of-any")
    assert sent("", account=anybody, b="Whatever")
    assert not sent("", account=anybody, b="Theirs")
    for topic in ("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        assert not sent("", account=anybody, b=topic)


async def test_a_user_that_may_trace_may_not_dispatch() -> None:
    assert sent("", b="RMQ_SYS_TRACE_TOPIC")
    assert not sent("INNER_MULTI_DISPATCH\x01%LMQ%theirs\x02", b="RMQ_SYS_TRACE_TOPIC")


# What a handler finds out


async def test_a_handler_asks_again_for_what_it_has_read() -> None:
    found: list[Request[NoHeader]] = []
    door = doors()
    door.ask(33, WRITER.signed({"offset": "0"}, b""), b"", JSON)
    found += door.served
    require_topic(found[0], "Mine", Action.GET)
    require_topic(found[0], "%RETRY%G", Action.SUB, "G")
    with pytest.raises(RequestError, match="No default permission for topic:Theirs"):
        require_topic(found[0], "Theirs", Action.GET)
    with pytest.raises(RequestError, match="Need admin permission"):
        require_topic(found[0], "SCHEDULE_TOPIC_XXXX", Action.GET)
    door.ask(310, WRITER.signed({**FIELDS, "b": "Mine"}, b""), b"", JSON)
    assert door.served[0].access is None


# Failures


class OneUser:
    """Accepts the signature `good` of any account."""

    def check(self, asked: AccessRequest) -> Verdict | None:
        if asked.signature != "good":
            raise FailedAttempt(ResponseCode.NO_PERMISSION, "check signature failed.")
        return Verdict(asked.access_key or "")

    def check_right(self, who: Verdict, asked: AccessRequest) -> None: ...

    revision = Revision()

    def secret_key(self, account: str) -> str | None:
        return None

    def shown(self, access_key: str) -> tuple[str, str]:
        return access_key, ""


def by(name: str, signature: str) -> dict[str, str]:
    return {**FIELDS, "AccessKey": name, "Signature": signature}


async def test_an_address_that_guesses_has_to_wait() -> None:
    clock = ManualClock()
    door = doors(clock, OneUser(), auth_failures_burst=5, auth_failures_per_second=2)
    answers = [door.ask(310, by("u", "bad"), b"", JSON) for _ in range(8)]
    assert [one.remark.split()[0] for one in answers] == ["check"] * 5 + ["too"] * 3
    assert {one.code for one in answers} == {ResponseCode.NO_PERMISSION}
    assert not door.ask(310, by("u", "good"), b"", JSON).served  # it is not even checked
    clock.advance(0.5)
    assert door.ask(310, by("u", "good"), b"", JSON).served


async def test_a_connection_that_has_signed_goes_on_as_who_it_is() -> None:
    door = doors(policy=OneUser(), auth_failures_burst=1, auth_failures_per_second=1)
    assert door.ask(310, by("u", "good"), b"", JSON).served
    assert door.ask(310, by("v", "bad"), b"", JSON).remark.startswith("check")
    assert door.ask(310, by("v", "bad"), b"", JSON).remark.startswith("too many")
    assert door.ask(310, by("u", "good"), b"", JSON).served


async def test_nobody_is_locked_out_by_who_tries_nothing() -> None:
    door = doors(policy=OneUser(), auth_failures_burst=1, auth_failures_per_second=1)
    for _ in range(5):
        assert not door.ask(310, FIELDS, b"", JSON).served
    assert door.ask(310, by("u", "good"), b"", JSON).served


async def test_a_white_address_is_never_locked_out() -> None:
    gate = Gate(
        [OneUser()], GateSettings(auth_failures_burst=1), ManualClock(), is_white=lambda asked: asked.fields["a"] == "w"
    )
    door = Doors([SEND], gate.stand_before)
    for _ in range(3):
        door.ask(310, by("u", "bad"), b"", JSON)
    assert not door.ask(310, by("u", "good"), b"", JSON).served
    assert door.ask(310, {**by("u", "good"), "a": "w"}, b"", JSON).served
    assert (gate.refused, gate.locked_out) == (4, 3)


async def test_a_white_address_counts_while_it_is_on_the_list() -> None:
    white: set[str] = set()

    class Open:
        """Admit everybody."""

        def check(self, asked: AccessRequest) -> Verdict | None:
            return None

        def check_right(self, who: Verdict, asked: AccessRequest) -> None: ...

        revision = Revision()

        def secret_key(self, account: str) -> str | None:
            return None

        def shown(self, access_key: str) -> tuple[str, str]:
            return access_key, ""

    gate = Gate([Open()], GateSettings(), ManualClock(), is_white=lambda asked: (asked.access_key or "-") in white)
    door = Doors([SEND], gate.stand_before)

    def may_publish() -> bool:
        return gate.allows(door.channel, "Mine", Action.PUB)

    assert not may_publish()
    assert door.ask(310, FIELDS, b"", JSON).served
    for names, is_allowed in ((set(), False), ({"-"}, True), (set(), False), ({"u"}, False)):
        white.clear()
        white.update(names)
        assert may_publish() is is_allowed
    # The account that the last request names counts.
    assert door.ask(310, {**FIELDS, "AccessKey": "u"}, b"", JSON).served
    assert may_publish()
    white.clear()
    assert not may_publish()


async def test_a_bug_of_a_policy_lets_nobody_in() -> None:
    class Broken:
        revision = Revision()

        def check(self, asked: AccessRequest) -> Verdict | None:
            raise KeyError("a bug")

        def shown(self, access_key: str) -> tuple[str, str]:
            return access_key, ""

    outcome = doors(policy=Broken()).ask(310, FIELDS, b"", JSON)
    assert not outcome.served and outcome.remark == "the request could not be checked"


async def test_without_accounts_nobody_is_let_in() -> None:
    door = Doors([SEND], Gate([], GateSettings(), ManualClock()).stand_before)
    assert not door.ask(310, FIELDS, b"", JSON).served


# The audit log


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "sprocket.audit"]


async def test_a_refusal_is_one_line_whatever_the_peer_writes(caplog: pytest.LogCaptureFixture) -> None:
    door = doors()
    name = 'a"\n event=access decision=allow \u2028' + "x" * 5000
    door.ask(310, {**FIELDS, "b": name, "AccessKey": name, "Signature": "s"}, b"", JSON)
    (line,) = lines(caplog)
    assert "\n" not in line and len(line) < 1500
    assert line.startswith(r'event=access decision=deny code=310 name=SEND_MESSAGE_V2 account="a\"\n event=access')
    assert 'peer="10.1.2.3:40000" resources="Topic:a' in line and "Signature" not in line


async def test_a_stranger_has_no_large_body_read(caplog: pytest.LogCaptureFixture) -> None:
    beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"G"}]}'
    for body, resources in ((beat, "Group:G=Sub"), (beat + b" " * 5000, "?")):
        caplog.clear()
        assert not doors().ask(34, {}, body, JSON).served
        assert f'resources="{resources}"' in lines(caplog)[0]
    caplog.clear()
    doors().ask(310, {**FIELDS, "b": "Mine"}, b"x" * 5000, JSON)
    assert 'resources="Topic:Mine=Pub"' in lines(caplog)[0]


async def test_what_is_served_is_written_only_if_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    signed = WRITER.signed({**FIELDS, "b": "Mine"}, b"")
    assert doors().ask(310, signed, b"", JSON).served
    assert not lines(caplog)
    assert doors(audit_allowed=True).ask(310, signed, b"", JSON).served
    (line,) = lines(caplog)
    assert 'decision=allow code=310 name=SEND_MESSAGE_V2 account="SomeWriter"' in line
    assert 'resources="Topic:Mine=Pub"' in line and WRITER.secret_key not in line and signed["Signature"] not in line


async def test_of_too_many_lines_the_count_is_written(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    door = doors(clock, audit_lines_per_second=3)
    for _ in range(10):
        door.ask(310, FIELDS, b"", JSON)
    assert len(lines(caplog)) == 3
    clock.advance(1)
    door.ask(310, FIELDS, b"", JSON)
    assert lines(caplog)[3] == "event=access_left_out lines=7"
    assert len(lines(caplog)) == 5


def test_a_resource_is_written_as_policies_are() -> None:
    asked = AccessRequest(310, 479, None, {"b": "Mine"}, b"", RouteAction.PUB)
    assert [one.key for one in required(asked)] == ["Topic:Mine=Pub"]
    assert required(asked)[0].resource == Resource.topic("Mine")
