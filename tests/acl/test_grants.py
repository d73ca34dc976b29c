"""Remembered decisions equal those that a new check would make, after any change."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acl.access_request import AccessRequest
from acl.auth.infos import acl_of
from acl.auth.model import User, UserStatus, UserType
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.grants import MAX_GRANTS, Grants, grant
from acl.plain.accounts import parse
from acl.plain.policy import PlainPolicy
from acl.remote_addresses import parts_of
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.routes import Action
from tests.tiers import examples

NAMES = ("alice1", "bob1234")
BOTH = AuthSettings(authentication_enabled=True, authorization_enabled=True)
DISPATCH = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
ACCOUNTS = b"""
accounts:
  - {accessKey: alice12, secretKey: secret-of-alice12, topicPerms: [orders=PUB, rmq_sys_x=PUB|SUB], groupPerms: [G=SUB]}
  - {accessKey: bob1234, secretKey: secret-of-bob1234, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""

requests = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(
        [(RequestCode.SEND_MESSAGE, Action.PUB), (RequestCode.SEND_MESSAGE_V2, Action.PUB),
         (RequestCode.PULL_MESSAGE, Action.SUB), (RequestCode.ACK_MESSAGE, Action.SUB)]
    ),
    st.sampled_from(["orders", "bills", "%RETRY%G", "%RETRY%G+orders", "rmq_sys_x", "%LMQ%a"]),
    st.sampled_from(["G", "H", None]),
    st.sampled_from(["", DISPATCH, "TIMER_DEL_UNIQKEY\x01bills+1\x02"]),
    st.sampled_from(["10.0.0.1", "10.9.0.1"]),
)  # fmt: skip
entries = st.builds(
    PolicyEntryInfo,
    st.sampled_from(["Topic:orders", "Topic:o*", "Topic:*", "Group:G", "Group:*", "*", "Topic:%LMQ%a", "Cluster:*"]),
    st.lists(st.sampled_from(["Pub", "Sub", "All"]), min_size=1, max_size=2),
    st.sampled_from([[], ["10.0.0.0/16"]]),
    st.sampled_from(["Allow", "Deny"]),
)
changes = st.tuples(st.sampled_from(NAMES), st.one_of(entries, st.sampled_from(["super", "normal", "disable", "gone"])))


def asked(
    name: str, kind: tuple[RequestCode, Action], topic: str, group: str | None, properties: str, peer: str
) -> AccessRequest:
    is_short = kind[0] == RequestCode.SEND_MESSAGE_V2
    fields = {"b" if is_short else "topic": topic, "i" if is_short else "properties": properties}
    if group is not None:
        fields["consumerGroup"] = group
    signed = Credentials(name, f"secret-of-{name}").signed(fields, b"x")
    return AccessRequest(kind[0], 479, parts_of(peer), signed, b"x", action=kind[1], cluster="c")


def outcome(policy: AuthPolicy | PlainPolicy, request: AccessRequest) -> object:
    try:
        return policy.check(request)
    except RequestError as error:
        return type(error), error.remark


def apply(tables: AuthTables, name: str, change: PolicyEntryInfo | str) -> None:
    if tables.user(name) is None:
        tables.create_user(User(name, f"secret-of-{name}"))
    if isinstance(change, PolicyEntryInfo):
        tables.update_acl(acl_of(AclInfo(f"User:{name}", [PolicyInfo(None, [change])])))
    elif change == "gone":
        tables.delete_user(name)
    elif change == "disable":
        tables.update_user(name, None, None, UserStatus.DISABLE)
    else:
        kind = UserType.SUPER if change == "super" else UserType.NORMAL
        tables.update_user(name, None, kind, UserStatus.ENABLE)


@settings(max_examples=examples(60))
@given(st.lists(st.one_of(requests, changes), max_size=30), requests)
def test_users_and_policies_decide_as_if_nothing_were_remembered(
    steps: list[tuple[Any, ...]], again: tuple[Any, ...]
) -> None:
    tables = AuthTables()
    apply(tables, "alice1", PolicyEntryInfo("*", ["All"], [], "Allow"))
    remembering = AuthPolicy(BOTH, tables, required)
    for step in steps:
        if len(step) == 2:
            apply(tables, *step)
        for one in (step, again) if len(step) != 2 else (again,):
            request = asked(*one)
            assert outcome(remembering, request) == outcome(AuthPolicy(BOTH, tables, required), request)


def test_accounts_decide_as_if_nothing_were_remembered() -> None:
    remembering = PlainPolicy({"f": parse("f", ACCOUNTS)})
    kinds = [(RequestCode.SEND_MESSAGE, Action.PUB), (RequestCode.PULL_MESSAGE, Action.SUB)]
    topics = ("orders", "bills", "rmq_sys_x", "%RETRY%G", "RMQ_SYS_TRACE_TOPIC")
    every = list(product(("alice12", "bob1234"), kinds, topics, ("G", "H", None), ("", DISPATCH), ("10.0.0.1",)))
    served = 0
    for one in [*every, *every]:
        found = outcome(remembering, asked(*one))
        assert found == outcome(PlainPolicy({"f": parse("f", ACCOUNTS)}), asked(*one))
        served += not isinstance(found, tuple)
    assert 0 < served < 2 * len(every)


def test_no_signature_is_remembered() -> None:
    tables = AuthTables()
    apply(tables, "alice1", PolicyEntryInfo("Topic:*", ["Pub"], [], "Allow"))
    policy = AuthPolicy(BOTH, tables, required)
    request = asked("alice1", (RequestCode.SEND_MESSAGE_V2, Action.PUB), "orders", None, "", "10.0.0.1")
    policy.check(request)
    for changed in ({"Signature": "x"}, {"e": "1"}, {"Signature": ""}):
        forged = AccessRequest(310, 479, request.peer, {**request.fields, **changed}, b"x", action=Action.PUB)
        assert "check signature failed." in str(outcome(policy, forged))


def test_names_of_any_length_and_number_take_no_more_than_so_much() -> None:
    send = (RequestCode.SEND_MESSAGE_V2, Action.PUB)
    assert grant("a", asked("alice1", send, "x" * 127, None, "", "10.0.0.1")) is not None
    assert grant("a", asked("alice1", send, "x" * 128, None, "", "10.0.0.1")) is None
    pull = (RequestCode.PULL_MESSAGE, Action.SUB)
    assert grant("a", asked("alice1", pull, "x", "g" * 256, "", "10.0.0.1")) is None
    known = Grants()
    for number in range(MAX_GRANTS + 5):
        known.remember((number,))
    assert (MAX_GRANTS + 4,) in known and (0,) not in known
    known.remember(None)
    assert None not in known
