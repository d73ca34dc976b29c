"""Changes by operators, with RocketMQ's refusals.

The cases are those of its AuthenticationMetadataManagerTest and AuthorizationMetadataManagerTest.
"""

import pytest

from acl.auth.errors import AuthRefused
from acl.auth.infos import acl_info, acl_of, policy_type_of, resource_of, user_info, user_status_of, user_type_of
from acl.auth.model import Acl, PolicyType, Resource, Subject, User, UserStatus, UserType
from acl.auth.tables import AuthContent, AuthTables
from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.codes import ResponseCode


def info(subject: str, resources: str, decision: str = "Allow", policy_type: str | None = None) -> AclInfo:
    entries = [
        PolicyEntryInfo(resource, ["Pub", "Sub"], ["192.168.0.0/24"], decision) for resource in resources.split(",")
    ]
    return AclInfo(subject, [PolicyInfo(policy_type, entries)])


def acl(subject: str, resources: str, decision: str = "Allow", policy_type: str | None = None) -> Acl:
    return acl_of(info(subject, resources, decision, policy_type))


@pytest.fixture
def tables() -> AuthTables:
    made = AuthTables()
    made.create_user(User("test", "secret"))
    return made


def refusal(refused: pytest.ExceptionInfo[AuthRefused]) -> str:
    assert refused.value.code == ResponseCode.NO_PERMISSION
    return refused.value.remark


def test_users_are_made_changed_and_removed(tables: AuthTables) -> None:
    user = tables.user("test")
    assert user == User("test", "secret", UserType.NORMAL, UserStatus.ENABLE)
    assert "secret" not in repr(user)
    with pytest.raises(AuthRefused) as refused:
        tables.create_user(User("test", "other"))
    assert refusal(refused) == "The user is existed"
    tables.update_user("test", "123", None, None)
    tables.update_user("test", " ", UserType.SUPER, None)
    tables.update_user("test", None, None, UserStatus.DISABLE)
    assert tables.user("test") == User("test", "123", UserType.SUPER, UserStatus.DISABLE)
    with pytest.raises(AuthRefused) as refused:
        tables.update_user("nobody", "123", None, None)
    assert refusal(refused) == "The user is not exist"
    tables.delete_user("test")
    tables.delete_user("test")
    assert tables.user("test") is None


@pytest.mark.parametrize(
    ("user", "text"),
    [
        (User("", "secret"), "username can not be blank"),
        (User("  ", "secret"), "username can not be blank"),
        (User("new", ""), "password can not be blank"),
    ],
)
def test_users_that_cannot_be(tables: AuthTables, user: User, text: str) -> None:
    with pytest.raises(AuthRefused) as refused:
        tables.create_user(user)
    assert refusal(refused) == text


def test_users_are_found_by_a_part_of_their_names(tables: AuthTables) -> None:
    tables.create_user(User("another", "x"))
    assert [user.username for user in tables.list_users()] == ["another", "test"]
    assert [user.username for user in tables.list_users(" ")] == ["another", "test"]
    assert [user.username for user in tables.list_users("es")] == ["test"]
    assert tables.list_users("nobody") == []


def test_acls_are_for_users_that_there_are(tables: AuthTables) -> None:
    with pytest.raises(AuthRefused) as refused:
        tables.update_acl(acl("User:ddd", "Topic:test"))
    assert refusal(refused) == "The subject of User:ddd is not exist."
    with pytest.raises(AuthRefused) as refused:
        tables.acl(Subject("ddd"))
    assert refusal(refused) == "The subject is not exist."
    assert tables.acl(Subject("test")) is None


def test_an_acl_grows_and_shrinks(tables: AuthTables) -> None:
    tables.update_acl(acl("User:test", "Topic:test,Group:test"))
    tables.update_acl(acl("User:test", "Topic:abc,Group:abc"))
    assert tables.acl(Subject("test")) == acl("User:test", "Topic:test,Group:test,Topic:abc,Group:abc")
    tables.update_acl(acl("User:test", "Topic:*", "Deny", "Default"))
    tables.delete_acl(Subject("test"), PolicyType.CUSTOM, Resource.topic("none"))
    for key in ("Topic:test", "Group:test", "Topic:abc"):
        tables.delete_acl(Subject("test"), PolicyType.CUSTOM, resource_of(key))
    left = tables.acl(Subject("test"))
    assert left is not None
    assert acl_info(left) == AclInfo("User:test", [
        PolicyInfo("Custom", [PolicyEntryInfo("Group:abc", ["Pub", "Sub"], ["192.168.0.0/24"], "Allow")]),
        PolicyInfo("Default", [PolicyEntryInfo("Topic:*", ["Pub", "Sub"], ["192.168.0.0/24"], "Deny")]),
    ])  # fmt: skip
    tables.delete_acl(Subject("test"), PolicyType.DEFAULT, resource_of("Topic:*"))
    tables.delete_acl(Subject("test"), PolicyType.CUSTOM, resource_of("Group:abc"))
    assert tables.acl(Subject("test")) is None
    with pytest.raises(AuthRefused) as refused:
        tables.delete_acl(Subject("test"), PolicyType.CUSTOM, None)
    assert refusal(refused) == "The acl is not exist."


def test_a_user_takes_its_acl_along(tables: AuthTables) -> None:
    tables.update_acl(acl("User:test", "Topic:test"))
    tables.delete_user("test")
    tables.create_user(User("test", "again"))
    assert tables.acl(Subject("test")) is None


def test_acls_are_found_by_subject_and_resource(tables: AuthTables) -> None:
    tables.create_user(User("test-2", "x"))
    tables.update_acl(acl("User:test", "Topic:one,Group:one"))
    tables.update_acl(acl("User:test-2", "Topic:two,Group:two"))

    def found(subject: str | None, resource: str | None) -> dict[str, list[str]]:
        return {
            one.subject.name: [entry.resource.key for policy in one.policies for entry in policy.entries]
            for one in tables.list_acls(subject, resource)
        }

    assert found(None, None) == {"test": ["Topic:one", "Group:one"], "test-2": ["Topic:two", "Group:two"]}
    assert found("test-2", None) == {"test-2": ["Topic:two", "Group:two"]}
    assert found(None, "Topic:one") == {"test": ["Topic:one"]}
    assert found("test", "two") == {"test-2": ["Topic:two", "Group:two"]}
    assert found("nobody", None) == found(None, "three") == {}


def test_what_cannot_be_saved_is_not_changed() -> None:
    def fail(_: AuthContent) -> None:
        raise StoreError("the disk is full")

    tables = AuthTables(fail)
    with pytest.raises(StoreError):
        tables.create_user(User("test", "secret"))
    assert tables.user("test") is None
    assert tables.revision.number == 0


def test_a_copy_takes_changes_that_came_before_the_tool_did() -> None:
    copy = AuthTables(is_copy=lambda: True)
    copy.create_user(User("test", "secret"))
    copy.create_user(User("test", "secret"))
    with pytest.raises(AuthRefused, match="The user is existed"):
        copy.create_user(User("test", "another"))
    copy.delete_acl(Subject("test"), PolicyType.CUSTOM, None)
    copy.delete_user("test")
    copy.delete_acl(Subject("test"), PolicyType.CUSTOM, None)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (AclInfo(None, [PolicyInfo(None, [])]), "The subject is null."),
        (AclInfo("Team:test", [PolicyInfo(None, [])]), "The subject is null."),
        (AclInfo("User:test", []), "The policies is empty."),
        (AclInfo("User:test", [PolicyInfo(None, [])]), "The policy entries is empty."),
        (info("User:test", "Tpic:t"), "The resource is null."),
        (info("User:test", "Topic:t", "Perhaps"), "The decision is null or illegal."),
        (info("User:test", "Topic:t", "Allow", "Other"), "The policyType 'Other' is not one of Custom, Default."),
    ],
)
def test_acls_that_cannot_be(written: AclInfo, text: str) -> None:
    with pytest.raises(AuthRefused) as refused:
        acl_of(written)
    assert refusal(refused) == text


@pytest.mark.parametrize(
    ("actions", "source_ips", "text"),
    [
        ([], None, "The actions is empty."),
        (["Any"], None, "The actions can not be Any."),
        (["Pub", "Publish"], None, "The action 'Publish' is not one of "),
        (["Pub"], [" "], "The source ip is empty."),
        (["Pub"], ["10.0.0.x"], "The source ip is invalid."),
        (["Pub"], ["10.0.0.0/33"], "The source ip is invalid."),
        (["Pub"], ["localhost/8"], "The source ip is invalid."),
        (["Pub"], ["10.0.*.*"], "The source ip is invalid."),
    ],
)
def test_entries_that_cannot_be(actions: list[str], source_ips: list[str] | None, text: str) -> None:
    written = AclInfo("User:test", [PolicyInfo(None, [PolicyEntryInfo("Topic:t", actions, source_ips, "Allow")])])
    with pytest.raises(AuthRefused) as refused:
        acl_of(written)
    assert refusal(refused).startswith(text)


def test_the_header_names_the_subject_that_the_body_does_not() -> None:
    written = info("User:test", "Topic:t")
    written.subject = None
    assert acl_of(written, "User:other").subject == Subject("other")


def test_infos_of_users() -> None:
    user = User("test", "secret", UserType.SUPER, UserStatus.DISABLE)
    assert user_info(user, with_password=True) == UserInfo("test", "secret", "Super", "disable")
    assert user_info(user, with_password=False) == UserInfo("test", None, "Super", "disable")
    assert "secret" not in repr(user_info(user, with_password=True))
    assert user_type_of(UserInfo()) is None
    assert user_status_of(UserInfo(user_status="")) is None
    assert user_type_of(UserInfo(user_type="SUPER")) is UserType.SUPER
    with pytest.raises(AuthRefused, match="userStatus 'disabled' is not one of enable, disable"):
        user_status_of(UserInfo(user_status="disabled"))
    assert policy_type_of(None) is PolicyType.CUSTOM
