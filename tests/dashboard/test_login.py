"""Login with the users of a cluster with access control."""

from collections.abc import Iterator

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.auth import UserInfo
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.credentials import Credentials
from sprocket.testing import Broker
from tests.dashboard.rig import running, visitor

ROOT = Credentials("root", "secret of root")


async def test_every_page_needs_a_login(guarded: Broker) -> None:
    async with running(guarded.namesrv) as (_, visitor):
        for path in (
            "/",
            "/topics",
            "/groups",
            "/messages",
            "/dead-letters",
            "/send",
            "/accounts",
            "/charts",
            "/offsets",
            "/schedules",
            "/namespaces",
            "/quotas",
            "/replication",
        ):
            page = await visitor.get(path)
            assert page.status == 303 and page.location.startswith("/login?next="), path
        assert (await visitor.post("/send/now", topic="T", body="x")).location.startswith("/login")


async def test_login_cookie_and_logout(guarded: Broker) -> None:
    async with running(guarded.namesrv) as (dashboard, mine):
        done = await mine.post("/login", user="root", secret="secret of root", next="/topics?kind=system")
        assert done.status == 303 and done.location == "/topics?kind=system"
        assert dashboard.access.session_count == 1
        cookie = next(one for one in mine.http.cookie_jar if one.key == "sprocket_session")
        assert cookie["httponly"] and cookie["samesite"] == "Strict" and len(cookie.value) == 43
        page = await mine.get("/")
        assert page.status == 200 and "Log out root" in page.text and "No other problem found" in page.text
        async with visitor(dashboard) as other:
            assert (await other.get("/")).status == 303
        token = await mine.token("/")
        assert (await mine.post("/logout", token=token)).location == "/login"
        assert dashboard.access.session_count == 0
        assert (await mine.get("/")).status == 303


async def test_wrong_passwords_are_refused_and_limited(guarded: Broker) -> None:
    async with running(guarded.namesrv, logins_burst=3) as (dashboard, visitor):
        for user, secret in (("root", "wrong"), ("nobody", "secret of root"), ("a has no permission to access", "x")):
            refused = await visitor.log_in(user, secret)
            assert f'value="{user}"' in refused.html and f'value="{secret}"' not in refused.html
            assert refused.status == 403, user
        assert dashboard.access.session_count == 0
        await visitor.log_in("root", "wrong")
        locked = await visitor.log_in("root", "secret of root")
        assert locked.status == 403 and "Too many logins" in locked.text


async def test_a_redirect_after_login_stays_here(guarded: Broker) -> None:
    async with running(guarded.namesrv) as (_, visitor):
        for place in ("//evil.example", "https://evil.example", "/\\evil.example"):
            done = await visitor.post("/login", user="root", secret="secret of root", next=place)
            assert done.location == "/", place


async def test_a_user_without_rights_may_log_in_and_sees_the_refusal(guarded: Broker) -> None:
    async with AdminClient([guarded.namesrv], credentials=ROOT) as admin:
        await admin.create_user(guarded.address, UserInfo("weak", "secret of weak", "Normal"))
    async with running(guarded.namesrv, credentials=ROOT) as (_, visitor):
        assert (await visitor.log_in("weak", "secret of weak")).status == 303
        for path in ("/", "/charts", "/accounts"):
            page = await visitor.get(path)
            assert page.status == 403 and "has no permission" in page.text, path


async def test_sessions_are_bounded(guarded: Broker) -> None:
    async with running(guarded.namesrv, max_sessions=1) as (dashboard, first), visitor(dashboard) as second:
        await first.log_in("root", "secret of root")
        await second.log_in("root", "secret of root")
        assert dashboard.access.session_count == 1
        assert (await first.get("/")).status == 303
        assert (await second.get("/")).status == 200


async def test_accounts_are_listed_created_and_deleted(guarded: Broker) -> None:
    async with running(guarded.namesrv) as (_, visitor):
        await visitor.log_in("root", "secret of root")
        token = await visitor.token("/accounts")
        made = await visitor.post("/accounts/create", token=token, user="clerk", secret="clerk's own", type="Normal")
        assert "User clerk was created" in made.text and "clerk's own" not in made.html and "own" not in made.text
        listed = await visitor.get("/accounts")
        assert "New user" in listed.text
        assert "clerk Normal enable" in listed.text and "root Super" in listed.text
        gone = await visitor.post("/accounts/delete", token=token, user="clerk")
        assert "User clerk was deleted" in gone.text
        assert "clerk Normal" not in (await visitor.get("/accounts")).text


@pytest.fixture(scope="module")
def with_plain_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACL 1.0."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(_PLAIN_ACL)
    properties = {"aclEnable": "true", "rocketmqHome": str(home)}
    with Broker(tmp_path_factory.mktemp("plain"), properties=properties) as running:
        yield running


_PLAIN_ACL = """
accounts:
  - {accessKey: Administrator, secretKey: secret-of-admin, admin: true}
  - accessKey: Application
    secretKey: secret-of-application
    whiteRemoteAddress: 10.0.0.*
    defaultTopicPerm: DENY
    topicPerms: [Offered=PUB|SUB]
    groupPerms: [billing=SUB]
"""


async def test_accounts_of_acl_1_are_listed(with_plain_accounts: Broker) -> None:
    async with running(with_plain_accounts.namesrv) as (_, visitor):
        await visitor.log_in("Administrator", "secret-of-admin")
        page = await visitor.get("/accounts")
        assert page.status == 200
        assert "Accounts of ACL 1.0" in page.text and "The brokers have no users" not in page.text
        assert "did not answer" not in page.text  # without ACL 2.0 it refuses to list users
        for words in ("Administrator yes", "Application no 10.0.0.*", "topic Offered=PUB|SUB", "group billing=SUB"):
            assert words in page.text, page.text
        assert "other topics=DENY" in page.text and "secret-of" not in page.html


async def test_an_account_of_acl_1_that_is_no_admin_sees_none(with_plain_accounts: Broker) -> None:
    async with running(with_plain_accounts.namesrv) as (_, visitor):
        await visitor.log_in("Application", "secret-of-application")
        assert "Offered" not in (await visitor.get("/accounts")).text


async def test_a_message_is_sent_as_the_user(guarded: Broker) -> None:
    async with running(guarded.namesrv) as (_, visitor):
        await visitor.log_in("root", "secret of root")
        token = await visitor.token("/send")
        async with AdminClient([guarded.namesrv], credentials=ROOT) as admin:
            await admin.create_topic(guarded.address, TopicConfig("Signed"))
        sent = await visitor.post("/send/now", token=token, topic="Signed", body="x")
        assert "SEND_OK" in sent.text, sent.text
