"""Writer of docs/mqadmin.md, from the commands that `sprocket_cli.mqadmin` declares.

Run as ``python -m docs.pages.mqadmin_page <file>`` (`make docs`); a test compares the file with the page.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

import click

from docs.pages.command import write
from sprocket_cli.client_session import json_option, namesrv_option
from sprocket_cli.mqadmin.absent import ABSENT
from sprocket_cli.mqadmin.main import COMMANDS, main

_HEAD: Final = """\
# mqadmin

Written by `make docs` from the commands in the code; do not edit.

`mqadmin COMMAND` administers a cluster with the names, flags and column layouts of Apache RocketMQ 5.3.3, and for lite
topics of 5.5.0. Upper and lower case do not matter in names of commands. `mqadmin help COMMAND` shows the flags of a
command. An error is one line on standard error. A command that asks the other brokers of a cluster after one failed
writes one line for each failure. The exit status is 0 for success, 1 if any server refused or cannot be reached, 2 for
wrong usage, 130 after Ctrl-C.

Every command has `-n`, unless its section says that it has none. If a command has `--json`, its section says so.

"""
_ENVIRONMENT: Final = """
`SPROCKET_TLS` makes a command use TLS. `ROCKETMQ_HOME` names the folder whose `conf/tools.yml` holds the account that
signs the requests. See [security.md](security.md).

"""
_ABSENT: Final = """
## Commands of RocketMQ that do not exist here

"""
_NAMESRV, _JSON = "--namesrvAddr", "--json"
_SUBJECT: Final = re.compile(r"`mqadmin` about (.+?)[:.](?: |$)")


def page() -> str:
    """Return the text of docs/mqadmin.md."""
    context = click.Context(main, info_name="mqadmin")
    shared = [_option(namesrv_option), _option(json_option)]
    named = {name: command_of(name, context) for name in main.list_commands(context) if name != "help"}
    parts = [_HEAD, *_table(shared, context), _ENVIRONMENT, "| Command | What it does |\n|---|---|\n"]
    parts += [f"| [`{name}`](#{name.lower()}) | {_about(named[name])[0]} |\n" for name in sorted(named, key=str.lower)]
    for module, names in COMMANDS.items():
        parts.append(f"\n## {_title(module)}\n")
        for name in names:
            parts += _command(named[name], context)
    parts += [_ABSENT, "| Command | Reason |\n|---|---|\n"]
    parts += [f"| `{name}` | {reason} |\n" for name, reason in sorted(ABSENT.items(), key=lambda each: each[0].lower())]
    return "".join(parts)


def command_of(name: str, context: click.Context) -> click.Command:
    """Return the command of this name."""
    command = main.get_command(context, name)
    assert command is not None
    return command


def _title(module: str) -> str:
    """Return what the docstring of a module says that its commands are about."""
    text = import_module(f"sprocket_cli.mqadmin.{module}").__doc__ or ""
    found = _SUBJECT.match(text.splitlines()[0])
    assert found is not None, f"sprocket_cli/mqadmin/{module}.py: the docstring begins with: `mqadmin` about ..."
    return found[1][0].upper() + found[1][1:]


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    own = click.Context(command, info_name=command.name, parent=context)
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert len(options) == len(command.params), f"{command.name}: the page does not show arguments without a flag"
    names = [option.opts[-1] for option in options]
    more = _about(command)[1:]
    more += ["It has no `-n`."] if _NAMESRV not in names else []
    more += ["It has `--json`."] if _JSON in names else []
    yield f"\n### {command.name}\n\n{_about(command)[0]}\n"
    yield from (f"\n{paragraph}\n" for paragraph in more)
    if set(names) - {_NAMESRV, _JSON}:
        yield "\n"
        yield from _table((option for option in options if option.opts[-1] not in (_NAMESRV, _JSON)), own)


def _about(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help."""
    return inspect.cleandoc(command.help or "").split("\n\n")


def _table(options: Iterable[click.Option], context: click.Context) -> Iterator[str]:
    yield "| Option | Value | | Meaning |\n|---|---|---|---|\n"
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        yield f"| {names} | {_value(option, context)} | {_need(option)} | {_cell(option.help or '')} |\n"


def _value(option: click.Option, context: click.Context) -> str:
    if option.is_flag:
        return ""
    return f"`{_cell(option.make_metavar(context))}`"


def _need(option: click.Option) -> str:
    """Return whether the option is required, else its default or the variable that gives one."""
    if option.required:
        return "required"
    if option.envvar:
        return f"default: `${option.envvar}`"
    default = option.to_info_dict()["default"]
    if option.is_flag or default is None or default == "":
        return ""
    return f"default: `{str(default).lower() if isinstance(default, bool) else default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _option(decorator: object) -> click.Option:
    """Return the option that a decorator adds."""
    assert callable(decorator)
    command = click.command()(decorator(lambda: None))
    [option] = command.params
    assert isinstance(option, click.Option)
    return option


if __name__ == "__main__":
    write(page())
