"""Users at the start of a server: from its file, its configuration, and the accounts of ACL 1.0."""

import logging
from pathlib import Path

import pytest

from acl.auth.files import AuthFiles
from acl.auth.infos import acl_info
from acl.auth.migration import acl_of_account, migrate
from acl.auth.model import User, UserType
from acl.auth.settings import AuthSettings
from acl.auth.start import fill
from acl.auth.tables import AuthTables
from acl.plain.accounts import WrittenAccount
from sprocket.common.errors import ConfigError

INIT = '{"username":"admin","password":"secret of admin"}'
INNER = '{"accessKey":"inner","secretKey":"secret of inner"}'


def filled(folder: Path, home: str = "", **settings: object) -> AuthTables:
    files = AuthFiles(folder)
    tables = AuthTables(files.save)
    fill(tables, files, AuthSettings(**settings), home)  # type: ignore[arg-type] # by name
    return tables


def test_users_of_the_configuration_are_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables = filled(tmp_path, init_authentication_user=INIT, inner_client_authentication_credentials=INNER)
    assert tables.list_users() == [
        User("admin", "secret of admin", UserType.SUPER), User("inner", "secret of inner", UserType.SUPER),
    ]  # fmt: skip
    tables.update_user("admin", "changed", UserType.NORMAL, None)
    again = filled(tmp_path, init_authentication_user=INIT, inner_client_authentication_credentials=INNER)
    assert again.user("admin") == User("admin", "changed", UserType.NORMAL)
    assert "event=configured_user_differs name='admin'" in caplog.text
    assert "secret of" not in caplog.text


def test_a_server_that_nobody_can_administer_is_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, authentication_enabled=True)
    assert "event=no_super_user" in caplog.text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"init_authentication_user": "admin:secret-admin"},
            "initAuthenticationUser: write a JSON object with username",
        ),
        ({"init_authentication_user": '{"username":"hidden"}'}, "initAuthenticationUser: write"),
        (
            {"init_authentication_user": '{"username":"secret","password":" "}'},
            "neither of username and password may be",
        ),
        ({"inner_client_authentication_credentials": "{}"}, "innerClientAuthenticationCredentials: write"),
        ({"authentication_whitelist": "10;11"}, "authenticationWhitelist: '10;11' is no request code"),
        ({"authorization_whitelist": "-1"}, "authorizationWhitelist: '-1' is no request code"),
        ({"authentication_provider": "com.example.Own"}, "authenticationProvider: 'com.example.Own' cannot be loaded"),
    ],
)
def test_settings_that_cannot_be_read_are_named_and_told_to_nobody(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AuthSettings(**settings).check_auth()  # type: ignore[arg-type] # by name
    assert text in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert "hidden" not in repr(AuthSettings(**settings))  # type: ignore[arg-type] # by name


def test_names_of_the_reference_are_taken() -> None:
    package = "org.apache.rocketmq.auth."
    AuthSettings(
        authentication_provider=package + "authentication.provider.DefaultAuthenticationProvider",
        authentication_metadata_provider=package + "authentication.provider.LocalAuthenticationMetadataProvider",
        authentication_strategy=package + "authentication.strategy.StatefulAuthenticationStrategy",
        authorization_provider="DefaultAuthorizationProvider",
        authorization_metadata_provider=package + "authorization.provider.LocalAuthorizationMetadataProvider",
        authorization_strategy="StatelessAuthorizationStrategy",
        authentication_whitelist="10, 11,",
    ).check_auth()


# Accounts of ACL 1.0


def rules(account: WrittenAccount) -> dict[str | None, list[tuple[str | None, list[str] | None, str | None]]]:
    written = acl_info(acl_of_account(account))
    return {
        policy.policy_type: [(entry.resource, entry.actions, entry.decision) for entry in policy.entries or ()]
        for policy in written.policies or ()
    }


def test_permissions_become_policies() -> None:
    account = WrittenAccount(
        "Application", "12345678", default_topic_perm="DENY", default_group_perm="SUB",
        topic_perms=["orders=PUB|SUB", "bills = PUB", "secrets=DENY", "broken", "odd=READ"], group_perms=["g=SUB"],
    )  # fmt: skip
    assert rules(account) == {
        "Custom": [
            ("Topic:orders", ["Pub", "Sub"], "Allow"),
            ("Topic:bills", ["Pub"], "Allow"),
            ("Topic:secrets", ["All"], "Deny"),
            ("Topic:odd", ["All"], "Deny"),
            ("Group:g", ["Sub"], "Allow"),
        ],
        "Default": [("Topic:*", ["All"], "Deny"), ("Group:*", ["Sub"], "Allow")],
    }
    assert rules(WrittenAccount("Application", "12345678")) == {}


def test_accounts_become_users_unless_they_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    tables = AuthTables()
    tables.create_user(User("known", "kept"))
    migrate(
        [
            WrittenAccount("known", "other", default_topic_perm="PUB"),
            WrittenAccount("Admin", "secret-of-admin", admin="true"),
            WrittenAccount("NoSecret", None),
            WrittenAccount("Plain", "secret", default_topic_perm="PUB"),
            WrittenAccount("Plain", "again", default_topic_perm="SUB"),
        ],
        tables,
    )
    assert tables.list_users() == [
        User("Admin", "secret-of-admin", UserType.SUPER), User("Plain", "secret"), User("known", "kept"),
    ]  # fmt: skip
    assert [acl.subject.key for acl in tables.list_acls()] == ["User:Plain"]
    assert "event=account_not_migrated access_key='NoSecret' reason='password can not be blank'" in caplog.text


def test_files_are_migrated_at_the_start(tmp_path: Path) -> None:
    conf = tmp_path / "home" / "conf"
    (conf / "acl").mkdir(parents=True)
    (conf / "plain_acl.yml").write_text("accounts:\n  - {accessKey: Administrator, secretKey: 12345678, admin: true}\n")
    (conf / "acl" / "more.yml").write_text("accounts:\n  - {accessKey: Reader, secretKey: 12345678}\n")
    tables = filled(tmp_path, str(tmp_path / "home"), migrate_auth_from_v1_enabled=True)
    assert [user.username for user in tables.list_users()] == ["Administrator", "Reader"]
    with pytest.raises(ConfigError, match="set rocketmqHome"):
        filled(tmp_path, "", migrate_auth_from_v1_enabled=True)
