"""Admission of requests: the order of the rules, and each rule by itself."""

from collections.abc import Mapping

import pytest

from acl.access_request import AccessRequest
from acl.plain.accounts import parse
from acl.plain.policy import AccessDenied, PlainPolicy
from acl.remote_addresses import parts_of
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials, signature
from sprocket.remoting.routes import Action
from tests.acl.plain.test_accounts import STOCK

AWAY = "172.16.0.1"
CODE = RequestCode
POLICY = PlainPolicy({"plain_acl.yml": parse("plain_acl.yml", STOCK)})


def ask(
    code: RequestCode,
    action: Action,
    fields: Mapping[str, str],
    *,
    key: str = "RocketMQ",
    secret: str = "01234567",
    peer: str = AWAY,
    body: bytes = b"",
) -> None:
    signed = Credentials(key, secret).signed(fields, body) if key else fields
    check(code, action, signed, peer=peer, body=body)


def check(
    code: RequestCode,
    action: Action,
    fields: Mapping[str, str],
    *,
    peer: str = AWAY,
    body: bytes = b"",
    version: int = 479,
) -> None:
    POLICY.check(AccessRequest(code, version, parts_of(peer), fields, body, action))


def refusal(*arguments: object, **changes: object) -> str:
    with pytest.raises(AccessDenied) as refused:
        ask(*arguments, **changes)  # type: ignore[arg-type] # as the test says
    return refused.value.remark.removeprefix("org.apache.rocketmq.acl.common.AclException: ")


def send(topic: str) -> tuple[RequestCode, Action, dict[str, str]]:
    return CODE.SEND_MESSAGE_V2, Action.PUB, {"a": "producers", "b": topic}


def pull(topic: str, group: str) -> tuple[RequestCode, Action, dict[str, str]]:
    return CODE.PULL_MESSAGE, Action.SUB, {"topic": topic, "consumerGroup": group}


def test_a_white_address_needs_no_signature() -> None:
    ask(*send("topicA"), key="", peer="10.10.103.7")
    ask(*send("topicA"), key="rocketmq2", secret="wrong wrong", peer="192.168.1.200")


def test_everybody_else_needs_an_account_and_its_key() -> None:
    assert refusal(*send("topicB"), key="") == "No accessKey is configured"
    assert refusal(*send("topicB"), key="Stranger") == "No acl config for Stranger"
    assert refusal(*send("topicB"), secret="76543210") == "Check signature failed for accessKey=RocketMQ"
    ask(*send("topicB"))


@pytest.mark.parametrize("cut", [0, 5, 27])
def test_a_signature_that_is_cut_is_none(cut: int) -> None:
    fields = Credentials("RocketMQ", "01234567").signed({"b": "topicB"}, b"")
    fields["Signature"] = fields["Signature"][:cut]
    with pytest.raises(AccessDenied, match="Check signature failed"):
        check(CODE.SEND_MESSAGE_V2, Action.PUB, fields)


@pytest.mark.parametrize("change", [{"b": "topicC"}, {"extra": "1"}, {"Signature": "Ü"}])
def test_what_was_changed_after_signing_is_refused(change: dict[str, str]) -> None:
    fields = Credentials("RocketMQ", "01234567").signed({"b": "topicB"}, b"body") | change
    with pytest.raises(AccessDenied, match="Check signature failed"):
        check(CODE.SEND_MESSAGE_V2, Action.PUB, fields, body=b"body")
    with pytest.raises(AccessDenied, match="Check signature failed"):
        check(CODE.SEND_MESSAGE_V2, Action.PUB, Credentials("RocketMQ", "01234567").signed({"b": "topicB"}, b"body"))


def test_what_an_old_client_adds_after_signing_is_not_signed() -> None:
    fields = {"topic": "topicB", "AccessKey": "RocketMQ"}
    fields["Signature"] = signature("01234567", fields, b"")
    fields["_UNIQUE_KEY_QUERY"] = "true"
    check(CODE.QUERY_MESSAGE, Action.GET, fields, version=399)
    with pytest.raises(AccessDenied, match="Check signature failed"):
        check(CODE.QUERY_MESSAGE, Action.GET, fields, version=401)


def test_the_signature_is_that_of_the_reference() -> None:
    # Made by `AclSigner.calSignature` of RocketMQ 5.3.3 over "AK123456group1topic1body" with the key "secret12".
    assert (
        signature("secret12", {"topic": "topic1", "group": "group1", "AccessKey": "AK123456"}, b"body")
        == "FXLt3t80S/NfIYRFhMlIWkDhe2Q="
    )


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (send("topicA"), "No permission for topic:topicA"),
        (send("topicC"), "No permission for topic:topicC"),
        (send("topicX"), "No default permission for topic:topicX"),
        (send("%RETRY%groupA"), "No permission for group:groupA"),
        (pull("topicA", "groupB"), "No permission for topic:topicA"),
        (pull("topicB", "groupA"), "No permission for group:groupA"),
        ((CODE.CONSUMER_SEND_MSG_BACK, Action.SUB, {"group": "groupA"}), "No permission for group:groupA"),
        (
            (CODE.POP_MESSAGE, Action.SUB, {"topic": "topicX", "consumerGroup": "g"}),
            "No default permission for topic:topicX",
        ),
        (
            (CODE.UPDATE_AND_CREATE_TOPIC, Action.CREATE, {"topic": "topicB"}),
            "Need admin permission for request code=17, but accessKey=RocketMQ is not",
        ),
        (
            (CODE.WIPE_WRITE_PERM_OF_BROKER, Action.UPDATE, {}),
            "Need admin permission for request code=205, but accessKey=RocketMQ is not",
        ),
        (
            (CODE.GET_BROKER_CONFIG, Action.GET, {}),
            "Need admin permission for request code=26, but accessKey=RocketMQ is not",
        ),
        (
            (CODE.GET_ALL_TOPIC_CONFIG, Action.LIST, {}),
            "Need admin permission for request code=21, but accessKey=RocketMQ is not",
        ),
        (
            (CODE.CONTROLLER_GET_METADATA_INFO, Action.NONE, {}),  # served by no route
            "Need admin permission for request code=1005, but accessKey=RocketMQ is not",
        ),
        (
            (CODE.GET_CONSUMER_CONNECTION_LIST, Action.GET, {"consumerGroup": "groupA"}),
            "No permission for group:groupA",
        ),
        (
            (CODE.QUERY_CONSUME_QUEUE, Action.GET, {"topic": "topicA", "consumerGroup": "groupB"}),
            "No permission for topic:topicA",
        ),
    ],
)
def test_what_an_account_may_not(asked: tuple[RequestCode, Action, dict[str, str]], reason: str) -> None:
    assert refusal(*asked) == reason
    ask(*asked, key="rocketmq2", secret="12345678")  # an admin may


@pytest.mark.parametrize(
    "asked",
    [
        send("topicB"),
        send("%RETRY%groupC"),
        send("RMQ_SYS_TRACE_TOPIC"),
        pull("topicB", "groupB"),
        pull("topicC", "unknown"),
        (CODE.UNREGISTER_CLIENT, Action.SUB, {"consumerGroup": "groupC"}),
        (CODE.GET_CONSUMER_CONNECTION_LIST, Action.GET, {"consumerGroup": "groupB"}),
        (CODE.GET_TOPIC_STATS_INFO, Action.GET, {"topic": "topicC"}),
    ],
)
def test_what_an_account_may(asked: tuple[RequestCode, Action, dict[str, str]]) -> None:
    ask(*asked)


def test_a_heartbeat_needs_all_that_it_subscribes_to() -> None:
    def body(topic: str, group: str) -> bytes:
        data = '{"clientID":"c","consumerDataSet":[{"groupName":"%s","consumeType":"CONSUME_PASSIVELY"'
        data += ',"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"'
        data += ',"subscriptionDataSet":[{"topic":"%s","subString":"*"}]}]}'
        return (data % (group, topic)).encode()

    beat: tuple[RequestCode, Action, dict[str, str]] = (CODE.HEART_BEAT, Action.SUB, {})
    ask(*beat, body=body("topicB", "groupB"))
    assert refusal(*beat, body=body("topicA", "groupB")) == "No permission for topic:topicA"
    assert refusal(*beat, body=body("topicB", "groupA")) == "No permission for group:groupA"


def test_of_an_account_in_two_files_the_first_counts() -> None:
    other = STOCK.replace(b"01234567", b"99999999")
    policy = PlainPolicy({"a.yml": parse("a.yml", STOCK), "b.yml": parse("b.yml", other)})
    fields = Credentials("RocketMQ", "01234567").signed({}, b"")
    policy.check(AccessRequest(CODE.UNREGISTER_CLIENT, 479, parts_of(AWAY), fields, b"", Action.SUB))


def test_a_heartbeat_that_is_none_is_refused() -> None:
    assert "cannot be told" in refusal(CODE.HEART_BEAT, Action.SUB, {}, body=b"{")
