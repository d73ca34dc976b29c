"""RocketMQ's client and mqadmin at a broker that serves an archive behind TLS and users."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from broker.archive import archive_service
from tests.combinations.archive_site import READER, drained, keys
from tests.combinations.profiles import OPERATOR, USERS_AND_TLS
from tests.combinations.site import Site, site_at
from tests.combinations.traffic import TOPIC
from tests.compat import maven
from tests.compat.java_client import tools_command

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def follows_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_service, "_FOLLOW_S", 0.02)


async def test_java_consumers_and_mqadmin_read_through_the_reader(tmp_path: Path, java: None) -> None:
    async with site_at(tmp_path, "2m-noslave", USERS_AND_TLS, keys(tmp_path)) as site, asyncio.timeout(150):
        _, expected = await drained(site, tmp_path)
        namesrv, count = site.written.cluster.namesrv, str(len(expected))
        account = OPERATOR.access_key, OPERATOR.secret_key
        source = Path(maven.__file__).parent / "java" / "archive" / "ArchiveConsumer.java"
        program = [maven.compiled(source, maven.apache_classpath()), source.stem]
        shown = await asyncio.to_thread(_java, site, *program, namesrv, TOPIC, count, *account)
        told = dict(line.split("\t", 1) for line in shown.splitlines() if "\t" in line)
        refusal = told.pop("refused", "")
        assert told == {
            "pulled": count, "by id": "true", "by key": "true", "pushed": count
        }, shown  # fmt: skip
        assert "serves an archive" in refusal or "No route info" in refusal, refusal
        tool = [maven.apache_classpath(), "org.apache.rocketmq.tools.command.MQAdminStartup"]
        where = ("-n", namesrv, "-t", TOPIC)
        for arguments, wanted in (
            (("topicStatus", *where), f"{READER} .* 0 +0 +{count}"),
            (("queryMsgByKey", *where, "-k", "k6"), " 0 +7"),
            (("consumeMessage", *where, "-b", READER, "-i", "0", "-o", "0", "-c", count), f"body-{int(count) - 2:03}"),
            (("consumerProgress", "-n", namesrv, "-g", "java-pushers"), f"{READER} .* {count} +{count}"),
        ):
            shown = await asyncio.to_thread(_java, site, *tool, *arguments)
            assert re.search(wanted, shown), (arguments, shown)


def _java(site: Site, classpath: str, *words: str) -> str:
    """Run a Java program with the account and the keys of the site; return what it printed."""
    folder = site.written.cluster.tls
    tls = [] if folder is None else ["-Dtls.enable=true", f"-Dtls.config.file={folder.properties('client')}"]
    command = tools_command(site.written.home, classpath)
    environment = os.environ | {"JAVA_TOOL_OPTIONS": " ".join(tls)}
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, env=environment, check=False)
    return done.stdout + done.stderr
