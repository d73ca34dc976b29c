"""`sprocket doctor`: gathers facts, prints what the checks find."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sprocket_cli.client_session import (
    HELP,
    json_option,
    name_servers,
    namesrv_option,
    print_json,
    run,
    tool_credentials,
    tool_tls,
    wrong_usage,
)
from sprocket_cli.doctor.checks import Finding, Level, findings, worst
from sprocket_cli.doctor.facts import Facts

if TYPE_CHECKING:
    from sprocket_cli.doctor.facts import Cluster, Local

_STATUS: Final = {Level.OK: 0, Level.WARNING: 1, Level.FAILURE: 2}
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings=HELP)
@namesrv_option
@click.option("-c", "--configFile", "config", type=_FILE, help="The configuration of a broker on this machine.")
@json_option
def doctor(namesrv: str | None, config: Path | None, as_json: bool) -> None:
    """Check this machine, with -c the configuration of its broker, and with -n a cluster; say what to do.

    Exit status: 0 nothing to do, 1 warnings, 2 failures (or wrong usage).
    """
    from sprocket_cli.doctor.machine_facts import machine

    found = findings(Facts(machine(), _local(config), _cluster(namesrv)))
    if as_json:
        documents = [
            {"check": one.check, "level": one.level.value, "text": one.text, "advice": one.advice} for one in found
        ]
        print_json({"level": worst(found).value, "findings": documents})
    else:
        for one in found:
            for line in _lines(one):
                click.echo(line)
    sys.exit(_STATUS[worst(found)])


def _local(config: Path | None) -> "Local | None":
    if config is None:
        return None
    from sprocket_cli.doctor.machine_facts import local
    from sprocket_cli.server.server_config import broker_configuration

    with wrong_usage():
        return local(broker_configuration(config, None))


def _cluster(namesrv: str | None) -> "Cluster | None":
    if not namesrv:
        return None
    from sprocket.common.clock import SystemClock
    from sprocket_cli.doctor.cluster_facts import cluster

    return run(cluster(name_servers(namesrv), tool_credentials(), tool_tls(), SystemClock()))


def _lines(finding: Finding) -> list[str]:
    first = f"{finding.level.value:8}{finding.check}: {finding.text}"
    return [first, f"        do: {finding.advice}"] if finding.advice else [first]
