"""docs/reference/commands.md, from the command line."""

from __future__ import annotations

from collections.abc import Iterator

from pages.commands import Command, everything, grouped, leaves
from pages.documents import DOCUMENTS

MADE = "<!-- Made by packaging/make-man from the command line: change that, and run it. -->"


#: The file of each program, and its heading.
FILES = {"netcommon": ("commands.md", "Commands"), "mockcloud": ("mockcloud-commands.md", "Commands of the mock cloud")}


def files() -> dict[str, str]:
    """The files, one for each program."""
    return {name: "\n".join(_lines(everything(program), heading)) + "\n" for program, (name, heading) in FILES.items()}


def _lines(root: Command, title: str) -> Iterator[str]:
    yield from (f"# {title}", "", MADE, "")
    yield (
        f"What `{root.program} COMMAND --help` and the man pages say. Every command ends with one of the "
        "[exit codes](exit-codes.md); `--json`"
    )
    yield "prints a document of the schema that is named here, with its version ([schemas](../schemas))."
    for heading, commands in grouped(root):
        yield from ("", f"## {heading}", "", "| command | what it does | schema |", "| --- | --- | --- |")
        for one in (leaf for command in commands for leaf in (command, *leaves(command)) if not leaf.inner):
            yield f"| [`{' '.join(one.words)}`](#{'-'.join((one.program, *one.words))}) | {one.short} | {_schema(one)} |"
    for one in (root, *leaves(root)):
        yield from ("", f"## {' '.join((one.program, *one.words))}", "", f"    {one.usage}", "")
        yield "\n\n".join(_safe(part) for part in one.paragraphs)
        if one.options:
            yield from ("", "| option | |", "| --- | --- |")
        for option in one.options:
            names = ", ".join(f"`{name}`" for name in option.names)
            value = f" `{option.value}`".replace("|", "\\|") if option.value else ""
            yield f"| {names}{value} | {_safe(option.help)} |"


def _schema(one: Command) -> str:
    """Name the schema of what the command prints, and of what it prints with an option that makes it another document."""
    words, found = " ".join(one.words), list[str]()
    for name, (_version, _made, commands) in DOCUMENTS.items():
        for command in commands if name.startswith(f"{one.program}-") else ():
            with_option = command.removeprefix(f"{words} ")
            if command == words or with_option.startswith("--"):
                found.append(f"[{name}](../schemas/{name}.json)" + ("" if command == words else f" with `{with_option}`"))
    return ", ".join(found)


def _safe(text: str) -> str:
    """What would be taken for mark-up."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
