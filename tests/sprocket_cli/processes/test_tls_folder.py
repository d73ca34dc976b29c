"""`sprocket tls`, and what `sprocket cluster up --tls` makes of the folder."""

import datetime
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from controller.config import ControllerConfig
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.settings import TLS_VARIABLE, TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from sprocket_cli.client_session import tool_tls
from sprocket_cli.main import main
from sprocket_cli.processes.local_cluster import LocalCluster
from sprocket_cli.processes.profile import Plan, Profile
from sprocket_cli.processes.tls_folder import TlsFolder
from sprocket_cli.server.server_config import broker_configuration, namesrv_configuration
from store.config.store_config import StoreConfig


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["tls", *arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run("init", str(tmp_path / "keys"), "--host", "broker.example.org", "--host", "10.1.1.1")
    return tmp_path / "keys"


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())


def hosts(folder: Path, name: str) -> list[str]:
    names = certificate(folder, name).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_what_it_makes(folder: Path) -> None:
    output = run("init", str(folder.parent / "other"), "--days", "10")
    today = datetime.datetime.now(datetime.UTC)
    assert f"{today + datetime.timedelta(days=10):%Y-%m-%d}" in output
    for key in folder.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")  # PKCS#8
    assert set(hosts(folder, "broker")) == {"localhost", "broker.example.org", "127.0.0.1", "::1", "10.1.1.1"}
    authority = certificate(folder, "ca")
    for name in ("namesrv", "broker", "client"):
        certificate(folder, name).verify_directly_issued_by(authority)
    with pytest.raises(x509.ExtensionNotFound):
        hosts(folder, "client")


def test_nothing_is_overwritten_unless_asked_for(folder: Path) -> None:
    before = (folder / "ca.key").read_bytes()
    assert "ca.pem is there already" in run("init", str(folder), status=2)
    assert (folder / "ca.key").read_bytes() == before
    run("init", str(folder), "--force")
    assert (folder / "ca.key").read_bytes() != before


def test_renewing_keeps_the_authority_and_the_hosts(folder: Path) -> None:
    run("client", str(folder), "billing")
    before = {name: certificate(folder, name) for name in ("ca", "namesrv", "broker", "client", "billing")}
    named = hosts(folder, "broker")
    secret = (folder / "replication.secret").read_bytes()
    assert "billing, broker, client, namesrv: until" in run("renew", str(folder))
    after = {name: certificate(folder, name) for name in before}
    assert after.pop("ca") == before.pop("ca")
    for name in after:
        assert after[name] != before[name]
        after[name].verify_directly_issued_by(certificate(folder, "ca"))
    assert sorted(hosts(folder, "broker")) == sorted(named)
    assert (folder / "replication.secret").read_bytes() == secret
    ServerTls(TlsSettings(server_mode="enforcing", config_file=folder / "broker.properties")).start()


def test_clients_of_other_names(folder: Path) -> None:
    run("client", str(folder), "billing")
    assert certificate(folder, "billing").subject.rfc4514_string() == "CN=billing"
    assert "is there already" in run("client", str(folder), "billing", status=2)
    for name in ("ca", "broker", "../x"):
        assert "cannot be a client's name" in run("client", str(folder), name, status=2)
    assert "sprocket tls init makes it" in run("client", str(folder.parent / "none"), "x", status=1)


def test_a_cluster_gets_its_keys(folder: Path, tmp_path: Path) -> None:
    beside = "enableControllerInNamesrv=true\ncontrollerDLegerGroup=g\n"
    plans = (
        Plan("namesrv-a", "NAMESRV"), Plan("namesrv-b", "NAMESRV", beside, has_controller=True),
        Plan("broker-a", "ASYNC_MASTER", "brokerName=broker-a\n", "C", "broker-a"),
    )  # fmt: skip
    LocalCluster.create(tmp_path / "cluster", Profile("one", plans), 20_000, TlsFolder(folder))
    cluster = LocalCluster(tmp_path / "cluster")
    assert cluster.tls is not None
    conf = tmp_path / "cluster" / "conf"
    for configuration in (
        namesrv_configuration(conf / "namesrv-a.properties"),
        namesrv_configuration(conf / "namesrv-b.properties"),
        broker_configuration(conf / "broker-a.properties", None),
    ):
        settings = configuration.of(TlsSettings)
        assert configuration.notices == ()
        assert (settings.server_mode, settings.is_client) == ("enforcing", True)
        ServerTls(settings).start()
        ClientTls(settings).start()
    ClientTls(cluster.tls.client_settings()).start()
    # A client's certificate opens the port for slaves no more than a stranger's.
    secret = broker_configuration(conf / "broker-a.properties", None).of(StoreConfig).ha_secret_file
    assert Path(str(secret)) == folder / "replication.secret"
    assert namesrv_configuration(conf / "namesrv-b.properties").of(ControllerConfig).ha_secret_file == secret
    assert stat.S_IMODE(Path(str(secret)).stat().st_mode) == 0o600 and len(Path(str(secret)).read_bytes()) > 64
    with pytest.raises(ConfigError, match=r"has no client\.properties"):
        LocalCluster.create(tmp_path / "cluster", Profile("one", plans), 20_000, TlsFolder(tmp_path))


def test_commands_take_the_folder_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JAVA_OPT", "JAVA_OPT_EXT", TLS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    assert tool_tls() is None
    monkeypatch.setenv(TLS_VARIABLE, str(folder))
    settings = tool_tls()
    assert settings is not None and settings.config_file == folder / "client.properties"
    ClientTls(settings).start()
    monkeypatch.delenv(TLS_VARIABLE)
    monkeypatch.setenv("JAVA_OPT", f"-Dtls.enable=true -Dtls.config.file={folder / 'client.properties'}")
    assert tool_tls() == settings
