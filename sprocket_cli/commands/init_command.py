"""`sprocket init`: a project to begin with."""

from pathlib import Path

import click

from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage


@click.command(context_settings=HELP)
@click.argument("name")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to write it.  [default: ./NAME]"
)
def init(name: str, folder: Path | None) -> None:
    """Write the project NAME: a program, a worker, tests with a broker, a compose file, CI.

    Its README has the commands. Nothing is overwritten.
    """
    from sprocket_cli.project import ProjectRefused, write_project

    target = folder or Path(name)
    try:
        written = write_project(name, target)
    except ProjectRefused as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"the project cannot be written: {error}") from None
    for path in written:
        click.echo(target / path)
    click.echo(f"next: cd {target} && pip install -e '.[dev]' && pytest")
