"""The man pages: of commands from the command line, of doors and files from the documents, of settings from their schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from netcommon import __version__
from netcommon.options.model import DEFAULTS
from netcommon.options.schema import OPTIONS
from netcommon.settings.model import Settings
from netcommon.settings.schema import KEYS, Key
from pages.commands import PROGRAMS, Command, Option, everything, grouped, leaves
from pages.roff import body, escape, inline, page, plain

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
DOCUMENTS = "/usr/share/doc/netcommon"

ABOUT_SETTINGS = (
    """/etc/netcommon/config.toml is TOML (https://toml.io). Without it every setting has its default. A file with an error is not used at
    all: hooks end with exit status 78 where a NIC comes up, and take the defaults where one goes. `netcommon config` prints what is in
    force, and where it comes from.""",
    "The file must belong to root, and be writable by root alone.",
)
ABOUT_OPTIONS = (
    """Options say what a NIC has beyond what its hypervisor describes. In rising order of precedence they are given by the tables [nic]
    and [networks.NAME] of netcommon-config(5), by tags of the network, netcommon:OPTION:VALUE, and by tags of the instance,
    netcommon:NIC:OPTION:VALUE, where NIC is the NIC's index, name or UUID, or * for all.""",
    "`netcommon plan` and `netcommon explain` say which option of a NIC comes from where.",
)

FILES = {
    "netcommon": (
        ("/etc/netcommon/config.toml", "the settings, netcommon-config(5)"),
        ("/etc/netcommon/nics.d/", "NICs of plain QEMU, netcommon-definition(5)"),
        ("/run/netcommon/nics/", "the records of NICs, netcommon-record(5)"),
        (DOCUMENTS, "the documents"),
    ),
    "mockcloud": (
        ("/var/lib/mockcloud/", "a cloud, where no other folder is named"),
        ("/var/lib/mockcloud/servers/UUID/", "a node: sysinfo.json, and its own /etc, /run and /var/lib"),
        (f"{DOCUMENTS}/docs/mockcloud.md", "the document"),
    ),
}

COMMAND, FORMAT, ADMINISTRATION = "1", "5", "8"


def files() -> dict[str, str]:
    """The files of packaging/man: name -> text."""
    roots = [everything(program) for program in PROGRAMS]
    made = {f"{_title(one)}.{COMMAND}": _command(one, root) for root in roots for one in (root, *leaves(root)) if len(one.words) < 2}
    for section, name in ((ADMINISTRATION, "doors.md"), (FORMAT, "formats.md")):
        for title, text in _sections((REFERENCE / name).read_text()):
            made[f"{title}.{section}"] = _document(title, section, text)
    made[f"netcommon-config.{FORMAT}"] = _settings()
    made[f"netcommon-options.{FORMAT}"] = _options()
    return made


def statuses() -> list[tuple[str, str]]:
    """Exit statuses and their meanings, as the document has them."""
    rows = re.findall(r"^\| (\d+) \| (.+?) \| .*\|$", (REFERENCE / "exit-codes.md").read_text(), re.M)
    return [(number, plain(meaning)) for number, meaning in rows]


def _statuses(without: Collection[str] = ()) -> Iterator[str]:
    for number, text in statuses():
        if number not in without:
            yield from (".TP", number, inline(f"{text[:1].upper()}{text[1:]}."))


def _title(command: Command) -> str:
    return "-".join((command.program, *command.words))


def _command(one: Command, root: Command) -> str:
    parts: list[tuple[str, Iterable[str]]] = [
        ("SYNOPSIS", _synopsis(one)),
        ("DESCRIPTION", _paragraphs(one.paragraphs)),
        ("OPTIONS", _listed(one.options)),
    ]
    if one.inner and one.words:
        for inner in (leaf for leaf in leaves(one) if not leaf.inner):
            title = " ".join(inner.words).upper()
            parts.append((escape(title), [*_synopsis(inner), *_paragraphs(inner.paragraphs), *_listed(inner.options)]))
    elif one.inner:
        parts.append(("COMMANDS", _commands(one)))
    parts.append(("EXIT STATUS", _statuses()))
    if not one.words:
        parts.append(("FILES", _files(FILES[one.program])))
    others = [f"{one.program}(1)"] if one.words else [f"{_title(inner)}(1)" for inner in root.inner]
    parts.append(("SEE ALSO", _also([*others, "netcommon-config(5)"])))
    return page(_title(one), COMMAND, __version__, one.short.rstrip(".")[:1].lower() + one.short.rstrip(".")[1:], parts)


def _commands(root: Command) -> Iterator[str]:
    for heading, commands in grouped(root):
        yield f".SS {escape(heading)}"
        for one in commands:
            yield from (".TP", f"\\fB{_title(one)}\\fR(1)", inline(one.short))


def _synopsis(one: Command) -> Iterator[str]:
    words = [one.program, *one.words]
    yield ".PP"
    yield f"\\fB{escape(' '.join(words))}\\fR {escape(one.usage.split(' ', len(words))[-1])}"


def _paragraphs(found: Iterable[str]) -> Iterator[str]:
    for one in found:
        yield ".PP"
        yield inline(" ".join(one.split()))


def _listed(options: Iterable[Option]) -> Iterator[str]:
    for one in options:
        value = f" \\fI{escape(one.value)}\\fR" if one.value else ""
        yield ".TP"
        yield ", ".join(f"\\fB{escape(name)}\\fR" for name in one.names) + value
        yield inline(one.help)


def _files(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, what in files:
        yield from (".TP", f"\\fI{escape(name)}\\fR", inline(what))


def _also(names: Iterable[str]) -> Iterator[str]:
    yield ", ".join(f"\\fB{escape(name[:-3])}\\fR{name[-3:]}" for name in names)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a document below its headings of the second rank."""
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        yield title.strip(), rest


def _document(title: str, section: str, text: str) -> str:
    """A page of one part of a document: what stands first in italics is its summary; what is indented next, its synopsis."""
    summary, rest = re.match(r"\s*\*(.+?)\*\n(.*)", text, re.S).groups()  # type: ignore[union-attr]
    usage, rest = re.match(r"\s*\n((?:    [^\n]+\n)+)(.*)", rest, re.S).groups() if section == ADMINISTRATION else ("", rest)  # type: ignore[union-attr]
    parts: list[tuple[str, Iterable[str]]] = []
    if usage:
        lines = [line.strip() for line in usage.splitlines()]
        parts.append(("SYNOPSIS", [f"\\fB{escape(line.partition(' ')[0])}\\fR {escape(line.partition(' ')[2])}".strip() for line in lines]))
    parts.append(("DESCRIPTION", body(rest)))
    if section == ADMINISTRATION:
        parts.append(("EXIT STATUS", _statuses(without=("1", "2"))))
    parts.append(("SEE ALSO", _also(["netcommon(1)", "netcommon-config(5)"])))
    return page(title, section, __version__, summary, parts)


def _settings() -> str:
    """config.toml."""
    tables: dict[str, list[Key]] = {}
    for key in KEYS:
        tables.setdefault(key.table, []).append(key)
    parts: list[tuple[str, Iterable[str]]] = [("DESCRIPTION", _paragraphs(ABOUT_SETTINGS))]
    for table, keys in tables.items():
        own = [key for key in keys if key.field not in ("nic", "networks")]
        lines = [*_paragraphs(("The options of NICs, netcommon-options(5).",))] if own != keys else []
        for key in own:
            lines += [".TP", f"\\fB{escape(key.name)}\\fR", inline(f"{key.doc}: {key.kind.expected}.{_default(key)}")]
        parts.append((f'"[{escape(table.replace("*", "NAME"))}]"', lines))
    parts.append(("SEE ALSO", _also(["netcommon(1)", "netcommon-options(5)"])))
    return page("netcommon-config", FORMAT, __version__, "the settings of a node: /etc/netcommon/config.toml", parts)


def _default(key: Key) -> str:
    value = key.default if key.option else getattr(Settings(), key.field)
    if value in ("", (), {}, None):
        return ""
    return f" The default is {str(value).lower() if isinstance(value, bool) else f'{value:g}' if isinstance(value, float) else value}."


def _options() -> str:
    """Options of NICs, in the settings and in tags."""
    lines: list[str] = []
    for one in OPTIONS:
        value = getattr(DEFAULTS, one.name)
        value = " ".join(value) if isinstance(value, tuple) else value
        shown = str(value).lower() if isinstance(value, bool) else str(value) if value != "" else "none"
        where = "" if len(one.modes) >= 3 else f" Mode {', '.join(one.modes)}."
        said = f"{one.doc[:1].upper()}{one.doc[1:]}: {one.kind.expected}. The default is {shown}.{where}"
        lines += [".TP", f"\\fB{escape(one.name)}\\fR", inline(said)]
    also = _also(["netcommon(1)", "netcommon-config(5)"])
    parts = [("DESCRIPTION", _paragraphs(ABOUT_OPTIONS)), ("OPTIONS", lines), ("SEE ALSO", also)]
    return page("netcommon-options", FORMAT, __version__, "options of NICs, in settings and tags", parts)
