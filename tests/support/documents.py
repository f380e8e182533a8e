"""The documents as a reader follows them: their links, their commands, and what those of tutorial and how-tos print when they are run.

A comment that a reader never sees stands before a fence, and says what a test does with it:

    <!-- run -->                    its commands are run, in the order of the page, as if they were pasted into one shell
    <!-- run: vm -->                in the machine of the lane vm alone: the running kernel lacks something
    <!-- run: always -->            in both
    <!-- run, exit 1 -->            the last command ends with this status; all others with 0
    <!-- prints -->                 the fence shows all that the commands of the last run fence print
    <!-- not run: WHY -->           the fence is read only
    <!-- given
    COMMANDS
    -->                             what the page takes for granted (an uplink, a guest); "given: vm" and "given: always" as above

In a fence that shows what is printed, "..." stands for anything within a line, and alone on a line for any lines; two blanks or more are
as good as any number of them but one, since the width of columns depends on what else is in them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tests.support.bootstrap import ROOT, VENV, cache
from tests.support.netns import slowness
from tests.support.sample import FULL

SKIPPED = ("build", "dist")
MARK = re.compile(
    r"^<!-- (?P<word>run|prints|not run|given)(?P<where>: [^\n]*?)?(?P<status>, exit \d+)?(?: -->|\n(?P<body>.*?)^-->)", re.M | re.S
)
#: What of a page comes after it is run in a full run alone: it takes minutes.
REST = "<!-- from here on in full runs -->"
FENCE = re.compile(r"^(?P<ticks>```+)(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$", re.M | re.S)
OTHER = {"vm": "kernel", "kernel": "vm"}


class Step(NamedTuple):
    """What a page has a reader do, or takes for granted."""

    line: int
    commands: str
    lane: str  #: "kernel", "vm", or "" for both
    status: int = 0  #: of the last command
    prints: str | None = None


class Played(NamedTuple):
    """What became of a step."""

    step: Step
    output: str
    failed: list[tuple[int, str]]  #: the status of each command that failed, and the command
    ended: bool  #: the shell came to its end


def pages() -> list[Path]:
    """Every Markdown file of the project."""
    found = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.md")) if not path.name.endswith(".template.md"))
    return [ROOT / path for path in found if not any(part.startswith(".") or part in SKIPPED for part in path.parts)]


def name(page: Path) -> str:
    """As people name it."""
    return str(page.relative_to(ROOT))


def blank(text: str, *patterns: re.Pattern[str]) -> str:
    """The text with all that fits replaced by blanks, line by line."""
    for pattern in patterns:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


# ---------------------------------------------------------------------------------------------------------------- links

INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:(?:    |\t)[^\n]*\n|\n(?=    |\t))+", re.M)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)


def links(page: Path) -> list[str]:
    """The targets of its links and pictures; code is not looked into."""
    text = blank(page.read_text(), FENCE, INDENTED, CODE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """What a link may have after "#": one for each heading, as GitHub and the HTML have them."""
    text = blank(page.read_text(), FENCE)
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.M):
        words = re.sub(r"\]\([^)]*\)|[`*\[]", "", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


# ------------------------------------------------------------------------------------------------------------- commands


def commands(page: Path) -> list[str]:
    """Every command line of netcommon's that the page names: in fences, indented and within a line."""
    text = page.read_text()
    printed = {mark.end() + 1 for mark in MARK.finditer(text) if mark["word"] == "prints"}
    blocks = []
    for fence in FENCE.finditer(text):
        prompt = "# " if fence["kind"].strip() == "console" else ""
        blocks += [re.sub(f"^{prompt}", "", fence["text"], flags=re.M)] if fence.start() not in printed else []
    blocks += [found["body"] for found in MARK.finditer(text) if found["body"]]
    rest = blank(text, FENCE, MARK)
    # in an indented block a remark stands after it, in a column of its own
    blocks += [re.sub(r"(?<=\S) {3,}.*", "", found[0]) for found in INDENTED.finditer(rest)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(found[0].strip("`").split()) for found in CODE.finditer(blank(rest, INDENTED))]
    return [command for line in lines for command in _ours(re.sub(r"^\s*\$ ", "", line))]


def _ours(line: str) -> Iterator[str]:
    """The commands of netcommon's in one line of shell."""
    if not re.search(r"(^|[\s;&|(/])netcommon ", line):
        return
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.commenters = "#"
    words.wordchars += "{}[]<>:@%"
    try:
        parts = list(words)
    except ValueError:  # prose with an apostrophe: no command line
        return
    command: list[str] = []
    for word in [*parts, ";"]:
        if word and not set(word) - set(";&|()"):
            if command and re.fullmatch(r"(\S*/)?netcommon", command[0]):
                yield shlex.join(command[1:])
            command = []
        elif command or not re.fullmatch(r"\s*|sudo|watch|[A-Z_]+=.*", word):
            command.append(word)


def refused(group: click.Group, command: str) -> str:
    """Why the command line cannot be given; "" if it can. Arguments may be words that stand for others, and may be left out.

    So may the command be: one in capitals is any. What stands in brackets is left out.
    """
    words = [word for word in shlex.split(re.split(r" '?[<>0-9]*[<>]", command)[0]) if not word.startswith("[")]
    context = click.Context(group, info_name="netcommon")
    here: click.Command = group
    while isinstance(here, click.Group):
        options, rest = _leading(words)
        try:
            here.make_parser(context).parse_args(list(options))
        except click.UsageError as error:
            return error.format_message()
        if not rest or rest[0].isupper():
            return ""
        found = here.get_command(context, rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        here, words = found, rest[1:]
        context = click.Context(here, info_name=rest[0], parent=context)
    try:
        _, extra, _ = here.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    return f"it takes no {extra[0]}" if extra else ""


def _leading(words: list[str]) -> tuple[list[str], list[str]]:
    """The options before the name of a command, and the rest. None of a group's takes a value."""
    number = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
    return words[:number], words[number:]


# -------------------------------------------------------------------------------------------------------------- running


def steps(page: Path) -> list[Step]:
    """What the page has run, in its order. Raises AssertionError where a mark is not understood."""
    text = page.read_text()
    if not FULL:
        text = text.partition(REST)[0]
    found: list[Step] = []
    for mark in MARK.finditer(text):
        line = text.count("\n", 0, mark.start()) + 1
        word, where = mark["word"], (mark["where"] or "").removeprefix(": ").strip()
        if word == "not run":
            assert where, f"{name(page)}:{line}: say why it is not run"
            continue
        body = mark["body"] if word == "given" else _fence(page, text, mark.end(), line)
        if word == "prints":
            assert found and found[-1].prints is None, f"{name(page)}:{line}: nothing was run before"
            found[-1] = found[-1]._replace(prints=body)
            continue
        assert where in ("", "vm", "always"), f"{name(page)}:{line}: vm or always, not {where!r}"
        lane = {"": "kernel", "vm": "vm", "always": ""}[where]
        found.append(Step(line, body, lane, int((mark["status"] or "0").rpartition(" ")[2])))
    return found


def _fence(page: Path, text: str, start: int, line: int) -> str:
    fence = FENCE.match(text, start + 1)
    assert fence, f"{name(page)}:{line}: no fence follows the mark"
    return fence["text"]


def unmarked(page: Path) -> list[int]:
    """The lines of fences of shell commands that no mark stands before."""
    text = page.read_text()
    marked = {mark.end() + 1 for mark in MARK.finditer(text)}
    shell = (fence for fence in FENCE.finditer(text) if fence["kind"].split(" ")[0] in ("sh", "bash", "console"))
    return [text.count("\n", 0, fence.start()) + 1 for fence in shell if fence.start() not in marked]


def fits(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows."""
    pattern = ""
    for line in shown.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            parts = (re.sub(r"(?:\\ ){2,}", "  +", re.escape(part)) for part in line.rstrip().split("..."))
            pattern += ".*?".join(parts) + r"[ \t]*\n"
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


#: A machine of its own for each page: overlays, so that it may write where a node's administrator does; nothing of it lasts.
MACHINE = """
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t sysfs sysfs /sys
mkdir -p /run/layers/checkout/lower /run/lock /run/netns
# before it is below an overlay itself: the kernel stacks two at most, and the root of a virtual machine may be one
mount --bind "$CHECKOUT" /run/layers/checkout/lower
if [ -d "$PACKAGES" ]; then
  mkdir /run/layers/packages
  mount --bind "$PACKAGES" /run/layers/packages
fi
export PACKAGES=/run/layers/packages
for place in etc root usr var; do
  mkdir -p /run/layers/$place/upper /run/layers/$place/work
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=/run/layers/$place/upper,workdir=/run/layers/$place/work" /$place
done
rm -rf /etc/netcommon /var/lib/netcommon
mkdir -p /usr/lib/netcommon /run/layers/checkout/upper /run/layers/checkout/work
cd /run/layers/checkout
mount -t overlay overlay -o "lowerdir=lower,upperdir=upper,workdir=work" /usr/lib/netcommon
ip link set lo up
cd /
"""
UNSHARED = ("unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
BEGIN, FAILED, END = "@@begin", "@@failed", "@@end"


def play(page: Path, lane: str, seconds: float = 480) -> list[Played]:
    """Pastes what the page says for that lane into a shell of root's, line by line. Raises subprocess.TimeoutExpired."""
    chosen = [step for step in steps(page) if step.lane != OTHER[lane]]
    setup = Step(0, MACHINE, lane)
    script = "".join(_pasted(number, step) for number, step in enumerate((setup, *chosen)))
    environ = {"PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CHECKOUT": str(ROOT), "LC_ALL": "C.UTF-8", "HOME": "/root"}
    environ |= {"PYTHONDONTWRITEBYTECODE": "1", "PACKAGES": str(cache() / "packages")}
    done = subprocess.run(
        [*UNSHARED, "bash"],
        input=script.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environ, **{name: value for name, value in os.environ.items() if name.startswith("NETCOMMON_TESTS")}},
        timeout=seconds * slowness(),
        check=False,
    )
    return [_played(number, step, done.stdout.decode(errors="replace")) for number, step in enumerate((setup, *chosen))]


def _pasted(number: int, step: Step) -> str:
    """A shell started in one step reads the next ones: so each sets its own trap."""
    trap = f"""trap 'printf "{FAILED} %d %s\\n" "$?" "$BASH_COMMAND"' ERR"""
    return f"{trap}; printf '{BEGIN} {number}\\n'\n{step.commands.rstrip()}\nprintf '\\n{END} {number}\\n'\n"


def _played(number: int, step: Step, output: str) -> Played:
    _, begun, rest = output.partition(f"{BEGIN} {number}\n")
    said, ended, _ = rest.partition(f"\n{END} {number}\n")
    failed = re.findall(rf"^{FAILED} (\d+) (.*)$", said, re.M)
    kept = "".join(line for line in said.splitlines(keepends=True) if not line.startswith(FAILED))
    return Played(step, kept, [(int(status), command) for status, command in failed], bool(begun and ended))


def wrong(played: Played) -> str:
    """Why a step did not go as its page says; "" if it did."""
    step = played.step
    said = f"\n--- printed\n{played.output.rstrip()}\n"
    if not played.ended:
        return f"line {step.line}: the shell did not come to its end{said}"
    if [status for status, _command in played.failed] != ([step.status] if step.status else []):
        return f"line {step.line}: failed, or not as it should: {played.failed}{said}"
    if step.prints is not None and not fits(step.prints, played.output):
        return f"line {step.line}: prints something else than\n{step.prints.rstrip()}{said}"
    return ""
