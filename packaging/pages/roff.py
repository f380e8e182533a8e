"""Man pages in man(7), from the small Markdown that the documents are written in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|(?<!\w)\*(?P<soft>[^*\s][^*]*)\*|\[(?P<link>[^\]]+)\]\([^)]+\)")


#: What roff would take for something else, or show as a look-alike.
ESCAPES = {ord(each): what for each, what in {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "~": "\\(ti", "^": "\\(ha"}.items()}


def escape(text: str) -> str:
    """Text that roff takes for text."""
    safe = text.translate(ESCAPES)
    return "\\&" + safe if safe.startswith(".") else safe


def inline(text: str) -> str:
    """One paragraph's words, bold and italic as the Markdown has them; of a link its text."""
    made, end = [], 0
    for found in INLINE.finditer(text):
        made.append(escape(text[end : found.start()]))
        code, strong, soft, link = found.group("code", "strong", "soft", "link")
        made.append(f"\\fB{escape(code or strong)}\\fR" if code or strong else f"\\fI{escape(soft)}\\fR" if soft else inline(link))
        end = found.end()
    whole = "".join([*made, escape(text[end:])])
    return "\\&" + whole if whole.startswith((".", "\\(aq")) else whole


def plain(text: str) -> str:
    """The same without any mark-up."""
    return INLINE.sub(lambda found: next(filter(None, found.groups())), text)


def body(markdown: str) -> Iterator[str]:
    """Lines of roff."""
    for block in re.split(r"\n{2,}", markdown.strip("\n")):
        lines = block.splitlines()
        if not block.strip() or block.startswith("<!--"):
            continue
        if block.startswith("### "):
            yield f'.SS "{escape(block[4:])}"'
        elif block.startswith("    "):
            yield from (".PP", ".RS 4", ".nf")
            yield from (escape(line[4:]) for line in lines)
            yield from (".fi", ".RE")
        elif block.startswith("| "):
            yield from _rows(lines)
        elif block.startswith("* "):
            for item in re.split(r"\n(?=\* )", block):
                yield ".IP \\(bu 2"
                yield inline(" ".join(item[2:].split()))
        else:
            yield ".PP"
            yield inline(" ".join(block.split()))


def _rows(lines: list[str]) -> Iterator[str]:
    """A table as a list: the first column is what the others are about."""
    headings, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if not line.startswith("| ---")]
    for first, *others in rows:
        yield ".TP"
        yield inline(first)
        said = [other if len(others) == 1 else f"{heading}: {other}" for heading, other in zip(headings[1:], others, strict=False) if other]
        yield inline("; ".join(said)) or "\\&"


def page(name: str, section: str, version: str, summary: str, parts: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A whole page: ``parts`` are headings and lines of roff."""
    lines = [
        '.\\" Made by packaging/make-man from the program and its documents: change those, and run that.',
        f'.TH "{escape(name).upper()}" "{section}" "" "netcommon {version}" "netcommon"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{escape(name)} \\- {escape(summary)}",
    ]
    for heading, made in parts:
        inner = list(made)
        if inner:
            lines.append(f".SH {heading}")
            lines += inner[1:] if inner[0] == ".PP" else inner
    return "\n".join(lines) + "\n"
