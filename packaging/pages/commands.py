"""The command line as values: what --help says, for man pages, the reference and completion."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from mockcloud.cli.group import mockcloud
from netcommon.cli.group import LazyGroup, netcommon
from netcommon.cli.names import complete


class Option(NamedTuple):
    """One option: its names, what its value is called ("" for a switch), what it may be, and its help."""

    names: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    help: str
    file: bool = False  #: its value is the path of a file
    many: bool = False


class Command(NamedTuple):
    """One command, or a group of them."""

    words: tuple[str, ...]  #: ("agent", "status")
    usage: str  #: "netcommon agent status [OPTIONS]"
    short: str
    paragraphs: tuple[str, ...]
    options: tuple[Option, ...]
    names: str  #: of what its arguments are names: "nics" of the node, "registry KIND" of the registry's, "" for none
    choices: tuple[str, ...]  #: its argument is one of these
    inner: tuple[Command, ...]
    program: str = "netcommon"


#: What an argument of netcommon registry is called -> of what it is a name.
REGISTRY = {"NETWORK": "networks", "NIC": "nics", "NODE": "nodes"}
#: Options whose value is a path, by the name of its kind of value.
FILES = frozenset({"FILE", "FILENAME", "PATH"})


#: The programs: the group of each, and its summary.
PROGRAMS: dict[str, tuple[click.Command, str]] = {
    "netcommon": (netcommon, "Networking of virtual machines' NICs."),
    "mockcloud": (mockcloud, "A simulated cluster of the real code, and rehearsals."),
}


def everything(program: str = "netcommon") -> Command:
    """The group of a program, with all in it."""
    group, short = PROGRAMS[program]
    context = click.Context(group, info_name=program, help_option_names=["-h", "--help"])
    return _command(group, (), context, short)


def leaves(command: Command) -> Iterator[Command]:
    """Every command that is run, in the order of help."""
    for inner in command.inner:
        yield inner
        yield from leaves(inner)


def grouped(root: Command) -> Iterator[tuple[str, list[Command]]]:
    """Yield each heading of help, and the commands below it."""
    group = PROGRAMS[root.program][0]
    for heading, names in (group.groups if isinstance(group, LazyGroup) else {}).items():
        yield heading, [one for one in root.inner if one.words[0] in names]


def _command(found: click.Command, words: tuple[str, ...], context: click.Context, short: str) -> Command:
    inner: list[Command] = []
    if isinstance(found, click.Group):
        for name in found.list_commands(context):
            one = found.get_command(context, name)
            if one is None or one.hidden:
                continue
            within = click.Context(one, parent=context, info_name=name)
            said = found.rows[name][1] if isinstance(found, LazyGroup) else one.get_short_help_str(200)
            inner.append(_command(one, (*words, name), within, said))
    arguments = [param for param in found.params if isinstance(param, click.Argument)]
    choices = next((tuple(map(str, one.type.choices)) for one in arguments if isinstance(one.type, click.Choice)), ())
    return Command(
        words,
        " ".join([context.command_path, *found.collect_usage_pieces(context)]),
        short,
        tuple(" ".join(part.split()) for part in inspect.cleandoc(found.help or "").split("\n\n")),
        tuple(_option(param, context) for param in found.get_params(context) if isinstance(param, click.Option) and not param.hidden),
        _names(words, arguments),
        choices,
        tuple(inner),
        context.find_root().info_name or "",
    )


def _names(words: tuple[str, ...], arguments: list[click.Argument]) -> str:
    if any(getattr(one, "_custom_shell_complete", None) is complete for one in arguments):
        return "nics"
    kinds = [REGISTRY[one.metavar] for one in arguments if words[:1] == ("registry",) and one.metavar in REGISTRY]
    return f"registry {kinds[0]}" if kinds else ""


def _option(param: click.Option, context: click.Context) -> Option:
    names = tuple(sorted((*param.opts, *param.secondary_opts), key=len))
    choices = tuple(map(str, param.type.choices)) if isinstance(param.type, click.Choice) else ()
    switch = param.is_flag or param.count
    value = "" if switch else "|".join(choices) if choices else _metavar(param.make_metavar(context))
    record = param.get_help_record(context)
    said = param.help or (record[1] if record else "")
    default = f" The default is {param.default}." if param.show_default and not switch else ""
    said = f"{said.rstrip('.')}. {range_of(param)}".strip() if range_of(param) else said
    file = value in FILES or isinstance(param.type, click.Path)
    return Option(names, "FILE" if file else value, choices, said.rstrip(".") + "." + default, file, param.multiple)


def range_of(param: click.Option) -> str:
    """Which numbers an option takes, "" where it is no such option."""
    kind = param.type
    return f"{kind.min:g} to {kind.max:g}" if isinstance(kind, click.FloatRange) and kind.min is not None and kind.max is not None else ""


def _metavar(text: str) -> str:
    return "NUMBER" if text.startswith(("FLOAT", "INTEGER")) else text
