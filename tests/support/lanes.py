"""The lanes of tests/run, one after the other, but fault with warm and vm, which run beside them; a lane that fails does not stop the next.

    lint     ruff over everything
    types    mypy --strict over product and tests' tools
    unit     tests/unit: pure tests, layers, style, properties
    kernel   the rest (contract, kernel, ...): the running kernel, in namespaces of their own
    fault    tests/fault, in the same way: it mostly waits
    warm     what kernel and fault have, with an agent on each node to which hooks hand their calls over (tests/support/warm.py): a part
             of it, or by --lane warm all; a sample in either case
    vm       what is marked vm: a Debian kernel under QEMU, one boot
    bench    tests/bench, last and alone; in a full run the minutes of rebuilding, and of a large registry on an etcd, too
    guard    the machine's own network is as before

Four processes share the files of kernel, in twelve parts, each in namespaces of its own, and two those of unit, in six: many tests wait.

--full runs every case instead of a sample, file by file (four at a time of kernel, two of fault and of unit, which goes folder by folder:
the longest first), and remembers in the cache what has passed: called again on the same tree, it goes on where it was. --lane may be
repeated; what else is given goes to pytest (a path too, instead of the lane's own).

The machine of vm is emulated on one core, mostly; fault mostly waits, and warm comes when it has ended. What they print follows the others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from tests.support import bootstrap, figures, inside, junit, progress, vm
from tests.support.bootstrap import ROOT, VENV, SetupFailed, say

PYTHON = str(VENV / "bin/python")
TYPED = [
    "runtime",
    "netcommon",
    "netagent",
    "netregistry",
    "mockcloud",
    "packaging/pages",
    "packaging/deb",
    "tests/support",
    "tests/conftest.py",
]
NOT_KERNEL_LANE = ("unit", "vm", "bench", "golden", "support", "fixtures", "fault", "lab")
BESIDE = (("fault", "warm"), ("vm",))  #: in a process each: its lanes one after the other
#: What of warm is run where nobody has named the lane: every form of a call, refusals, many at once, each reason to hand a call back.
WARM = (
    *(f"tests/kernel/test_doors_{name}.py" for name in ("calls", "invalid", "parallel", "scripts")),
    "tests/kernel/test_communication.py::test_two_guests_share_one_daemon",
    *(f"tests/fault/test_resources.py::test_every_{name}" for name in ("amount_of_room", "number_of_descriptors")),
)
#: What of fault and unit takes the longest, first in a full run, and the longest of all first: what runs at the same time ends together.
LONGEST = (
    *(
        f"tests/fault/test_{name}.py"
        for name in ("registry_etcd_killed", "endurance", "interleavings", "kill", "kill_agent", "kernel_errors", "switch")
    ),
    *(f"tests/unit/{name}/" for name in ("netcommon/lifecycle", "netagent/sync")),
)
AT_ONCE = {"unit": 2, "kernel": 4, "fault": 2}  #: processes of a lane, many of which wait; of fault in a full run
PARTS = {"unit": 6, "kernel": 12, "fault": 3}  #: of a lane's files: who has ended with one takes the next, so that all end together
FULL_TIMES = 4  #: as long as otherwise a file may take in a full run
SHOWN = 25  #: files of a lane whose time is said
#: What many processes do together is timed in these for minutes: in a full run they come last and alone, as bench does.
ALONE = ("tests/fault/test_rebuilding.py", "tests/fault/test_registry_etcd_scale.py")
#: Folders of this machine in which no test may leave anything.
OURS = (
    *("/run/netcommon", "/etc/netcommon", "/var/lib/netcommon", "/run/openvswitch"),
    *("/var/run/ganeti", "/etc/ganeti", "/var/lib/nfdhcpd"),
)
#: Where installs write: no file in these may change, nor may one behind a link (Ganeti's lead from the first to the others).
WRITTEN = ("/usr/lib/ganeti", "/usr/share/ganeti", "/etc/xen", "/etc/systemd", "/usr/local/sbin")
#: What the machine is set up for, and the lanes that need it.
NEEDS = {
    "unit": ("unit",),
    "guard": ("lint", "types", "unit", "kernel", "fault", "warm", "vm", "bench"),
    "kernel": ("kernel", "fault", "warm", "bench", "vm"),
    "browser": ("kernel", "warm"),
    "vm": ("vm",),
}
RUNNING: set[subprocess.Popen[bytes]] = set()  #: what lanes have started, in whichever thread
ENDING = threading.Event()  #: a signal has come: nothing runs any more
ROOTS = ("guard", "kernel", "browser", "vm")  #: of these, what lanes need that only root can run, or only if it does


class Options(NamedTuple):
    """What tests/run was asked for."""

    full: bool
    extra: tuple[str, ...]
    figures: Path | None = None  #: the folder that the fault suite notes its figures in
    named: bool = False  #: lanes were chosen by their names
    agents: bool = False  #: tests with a node have an agent on it

    @property
    def environment(self) -> dict[str, str]:
        more = {figures.VARIABLE: str(self.figures)} if self.figures else {}
        more |= {"NETCOMMON_TESTS_WARM": "1"} if self.agents else {}
        return {**os.environ, **more, "NETCOMMON_TESTS_FULL": "1" if self.full else "0", "PYTHONDONTWRITEBYTECODE": ""}


class Result(NamedTuple):
    """What became of a lane, or of a part of one."""

    passed: int
    failed: int


def program(argv: list[str]) -> Result:
    """A check that is one program: one test."""
    status = subprocess.run(argv, cwd=ROOT, check=False).returncode
    return Result(int(status == 0), int(status != 0))


def lint(options: Options) -> Result:
    """ruff: what it finds, and the form that it gives."""
    ruff = str(VENV / "bin/ruff")
    found = program([ruff, "check", "--no-cache", "."]), program([ruff, "format", "--check", "--no-cache", "--quiet", "."])
    return Result(sum(one.passed for one in found), sum(one.failed for one in found))


def types(options: Options) -> Result:
    """mypy --strict. The hooks have no .py at their end, so they are named one by one."""
    hooks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "hooks").rglob("*")) if is_python(path)]
    cache = bootstrap.cache() / "mypy"
    status = program([PYTHON, "-m", "mypy", "--cache-dir", str(cache), *TYPED])
    for hook in hooks:  # each is a __main__ of its own
        one = program([PYTHON, "-m", "mypy", "--cache-dir", str(cache), "--scripts-are-modules", hook])
        status = Result(status.passed + one.passed, status.failed + one.failed)
    return status


def is_python(path: Path) -> bool:
    """Whether it is an executable that Python runs."""
    return path.is_file() and not path.is_symlink() and b"python" in path.open("rb").readline()


def pytest(
    options: Options, name: str, paths: list[str], marks: str, seconds: int, alone: bool = True, output: IO[bytes] | None = None
) -> Result:
    """One pytest process in namespaces of its own (``alone``; that needs root). It writes to ``output``, if that is given."""
    xml = bootstrap.cache() / "results" / f"{name.replace('/', '_')}-{os.getpid()}.xml"
    xml.parent.mkdir(exist_ok=True)
    chosen = [] if any((ROOT / argument.split("::")[0]).exists() for argument in options.extra) else paths
    argv = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=3", "--durations-min=2", f"--junitxml={xml}"]
    argv += ["-m", marks, *chosen, *options.extra]
    if alone:
        argv = inside.wrapped(PYTHON, argv)
    with subprocess.Popen(argv, cwd=ROOT, env=options.environment, stdout=output, stderr=output) as process:
        RUNNING.add(process)
        try:
            status = process.wait(0.0 if ENDING.is_set() else seconds)
        except subprocess.TimeoutExpired:
            say(f"{name}: not finished after {seconds} s")
            status = 124
        finally:
            process.kill()  # unless it has ended; what it has started goes with it (unshare --kill-child)
            RUNNING.discard(process)
    counts = junit.read(xml)
    longest = ", ".join(f"{module} {spent:.0f}" for module, spent in junit.slowest(xml, SHOWN) if spent >= 1)
    if longest and not options.full:  # a full run goes file by file, and says it anyway
        (output or sys.stdout.buffer).write(f"seconds: {longest}\n".encode())
        (output or sys.stdout.buffer).flush()
    xml.unlink(missing_ok=True)
    return judged(counts, status)


def judged(counts: junit.Counts, status: int) -> Result:
    """A process that failed without a failed test (killed, broken collection) counts as a failure. Status 5: no test was selected."""
    failed = counts.failed or int(status not in (0, 5))
    return Result(counts.passed, failed)


def marks(options: Options, *excluded: str) -> str:
    """The expression for ``pytest -m``."""
    return " and ".join(f"not {mark}" for mark in (*excluded, *(() if options.full else ("slow",))))


def grouped(
    options: Options,
    lane: str,
    folders: list[str],
    expression: str,
    seconds: int,
    at_once: int = 1,
    parts: int = 1,
    by_folder: bool = False,
) -> Result:
    """A lane of pytest in so many ``parts``, ``at_once`` of them, each with its share of the files.

    In a full run there is one process for each file (or for each folder, ``by_folder``: where files take less than a process does to
    begin), and those that passed before are not run again.
    """
    alone = os.geteuid() == 0
    if options.extra or (parts == 1 and not options.full):
        return pytest(options, lane, folders, expression, FULL_TIMES * seconds if options.full else seconds, alone)
    done = progress.Progress(ROOT, bootstrap.cache() / "full")
    files = longest_first(files_of(folders, options.full))

    printing = threading.Lock()

    def named_part(noting: Options, name: str, chosen: list[str], limit: int) -> Result:
        start = time.monotonic()
        with tempfile.TemporaryFile() as said:
            part = pytest(noting, f"{lane}-{name}", chosen, expression, limit, alone, said)
            said.seek(0)
            text = said.read().decode(errors="replace")
        with printing:
            say(f"{name} took {time.monotonic() - start:.0f} s")
            print(text, end="", flush=True)
        return part

    def share(number: int) -> Result:
        return named_part(options, f"part {number + 1} of {parts} of {lane}", files[number::parts], seconds)

    def one(name: str) -> Result:
        before = done.passed(name)
        if before is not None:
            say(f"{name}: {before} passed earlier")
            return Result(before, 0)
        say(name)
        part = named_part(options._replace(figures=done.emptied(name)), name, named[name], FULL_TIMES * seconds)
        if not part.failed:
            done.remember(name, part.passed)
        return part

    named: dict[str, list[str]] = {}
    for file in files:
        named.setdefault(str(Path(file).parent) if by_folder else file, []).append(file)
    with ThreadPoolExecutor(at_once) as pool:
        try:
            results = list(pool.map(one, named) if options.full else pool.map(share, range(parts)))
        except BaseException:  # such as a signal: its threads would go on to the end
            ENDING.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(RUNNING):
                process.kill()
            raise
    return Result(sum(part.passed for part in results), sum(part.failed for part in results))


def files_of(folders: Sequence[str], full: bool = True) -> list[str]:
    """The files of tests in these folders; of ALONE, in a ``full`` run, those that are named themselves."""
    found = [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("test_*.py")]
    return [*(file for file in found if not full or file not in ALONE), *(file for file in folders if file in ALONE)]


def longest_first(files: Sequence[str]) -> list[str]:
    """LONGEST first, in its order, then the others by name."""

    def place(file: str) -> int:
        return next((place for place, start in enumerate(LONGEST) if file.startswith(start)), len(LONGEST))

    return sorted(files, key=lambda file: (place(file), file))


def unit(options: Options) -> Result:
    """tests/unit."""
    return grouped(options, "unit", ["tests/unit"], marks(options, "vm", "bench"), 1200, AT_ONCE["unit"], PARTS["unit"], by_folder=True)


def kernel(options: Options) -> Result:
    """Everything else that the running kernel can do."""
    return rooted(options, "kernel", kernel_folders(), AT_ONCE["kernel"], PARTS["kernel"])


def kernel_folders() -> list[str]:
    """Those of the kernel lane."""
    folders = [f"tests/{path.name}" for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and path.name not in NOT_KERNEL_LANE]
    return [folder for folder in folders if any((ROOT / folder).rglob("test_*.py"))]


def fault(options: Options) -> Result:
    """tests/fault, on the running kernel."""
    return rooted(options, "fault", ["tests/fault"], AT_ONCE["fault"] if options.full else 1, PARTS["fault"])


def warm(options: Options) -> Result:
    """What kernel and fault have, with agents: sampled, in a full run too."""
    paths = [*kernel_folders(), "tests/fault"] if options.named else list(WARM)
    return rooted(options._replace(full=False, agents=True), "warm", paths, seconds=2400)


def rooted(options: Options, lane: str, folders: list[str], at_once: int = 1, parts: int = 1, seconds: int = 1200) -> Result:
    """A lane of pytest that changes the kernel's network."""
    if os.geteuid() != 0:
        say(f"the {lane} lane needs root")
        return Result(0, 1)
    return grouped(options, lane, folders, marks(options, "vm", "bench"), seconds, at_once, parts)


def machine(options: Options) -> Result:
    """What is marked vm, in a Debian kernel."""
    if os.geteuid() != 0:
        say("the vm lane needs root")
        return Result(0, 1)
    done = progress.Progress(ROOT, bootstrap.cache() / "full")
    before = done.passed("vm") if options.full and not options.extra else None
    if before is not None:
        say(f"vm: {before} passed earlier")
        return Result(before, 0)
    expression = "vm" if options.full else "vm and not slow"
    noting = options._replace(figures=done.emptied("vm")) if options.full and not options.extra else options
    counts, status = vm.boot(expression, list(options.extra), noting.environment, 4500 if options.full else 1800)
    result = judged(counts, status)
    if options.full and not result.failed and not options.extra:
        done.remember("vm", result.passed)
    return result


def bench(options: Options) -> Result:
    """tests/bench, and in a full run ALONE: nothing else runs meanwhile."""
    if not any((ROOT / "tests/bench").rglob("test_*.py")):
        return Result(0, 0)
    measured = pytest(options, "bench", ["tests/bench"], marks(options, "vm"), 900, os.geteuid() == 0)
    if not options.full or options.extra:
        return measured
    timed = grouped(options, "bench", list(ALONE), marks(options, "vm"), 300)
    return Result(measured.passed + timed.passed, measured.failed + timed.failed)


LANES: dict[str, Callable[[Options], Result]] = {
    "lint": lint,
    "types": types,
    "unit": unit,
    "kernel": kernel,
    "fault": fault,
    "warm": warm,
    "vm": machine,
    "bench": bench,
}


def footprint() -> dict[str, str]:
    """Describe what of the machine's own network and files no test may change."""
    views = {
        "links": ["ip", "-br", "link"],
        "rules": ["ip", "rule"],
        "rules6": ["ip", "-6", "rule"],
        "routes": ["ip", "route", "show", "table", "all"],
        "nft": ["nft", "list", "tables"],
        "forwarding": ["sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"],
        "files": ["find", *WRITTEN, "-xdev", "-printf", r"%p %m %U %G %s %T@ %l\n"],
    }
    seen = {name: bootstrap.command([bootstrap.find(argv[0]) or argv[0], *argv[1:]], check=False).stdout for name, argv in views.items()}
    for path in OURS:
        seen[path] = " ".join(sorted(os.listdir(path))) if os.path.isdir(path) else "not there"
    return seen


def guard(before: dict[str, str]) -> Result:
    """Compares the machine with what it was."""
    after = footprint()
    changed = [name for name in before if before[name] != after[name]]
    for name in changed:
        say(f"the tests changed this machine: {name}\n--- before\n{before[name]}\n--- after\n{after[name]}")
    return Result(int(not changed), int(bool(changed)))


def main(arguments: list[str]) -> int:
    """Exit status 0 where every lane passed, 1 where one failed, 69 where the machine could not be set up, 128 + N for a signal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)
    parser = argparse.ArgumentParser(prog="tests/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="every case, resumable")
    parser.add_argument("--lane", action="append", choices=list(LANES), help="only this lane; may be repeated")
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)  # where the results go too, for a tests/run that has started us
    parser.add_argument("--unnamed", action="store_true", help=argparse.SUPPRESS)  # and nobody had named our lanes to it
    known, extra = parser.parse_known_args(arguments)
    options = Options(known.full, tuple(extra), named=known.lane is not None and not known.unnamed)
    chosen = known.lane or list(LANES)
    root = os.geteuid() == 0
    try:
        bootstrap.setup(purposes(chosen, root))
    except SetupFailed as error:
        print(f"tests/run: {error}", file=sys.stderr)
        return 69
    before, begin = footprint() if root else {}, time.monotonic()
    results: dict[str, tuple[Result, float]] = {}
    last = ["bench"] if "bench" in chosen else []
    meanwhile = [] if known.results is not None else processes(chosen)
    with beside(meanwhile, arguments, results, options.named):
        for lane in chosen:
            if lane not in (*(each for lanes in meanwhile for each in lanes), *last):
                results[lane] = run(lane, options)
    for lane in last:
        results[lane] = run(lane, options)
    if root and known.results is None:
        results["guard"] = guard(before), 0.0
    if known.results is not None:
        known.results.write_text(json.dumps(results))
    return report({lane: results[lane] for lane in (*LANES, "guard") if lane in results}, begin)


def stopped(number: int, frame: FrameType | None) -> None:
    """End on a signal in the way in which Python ends on Ctrl-C, so that what runs is ended first."""
    raise SystemExit(128 + number)


def purposes(chosen: Sequence[str], root: bool) -> list[str]:
    """List what bootstrap.setup() is called for before the lanes ``chosen``, which have no network."""
    needed = [purpose for purpose, lanes in NEEDS.items() if {*lanes} & {*chosen}]
    return ["environment", *(purpose for purpose in needed if root or purpose not in ROOTS)]


def processes(chosen: Sequence[str]) -> list[list[str]]:
    """Group those of the lanes ``chosen`` that run beside the others, by the process that runs them; none where nothing else is chosen."""
    found = [[lane for lane in lanes if lane in chosen] for lanes in BESIDE]
    return [lanes for lanes in found if lanes and len(lanes) < len(set(chosen))]


def run(lane: str, options: Options) -> tuple[Result, float]:
    """One lane, and how many seconds it took."""
    say(f"=== {lane}")
    start = time.monotonic()
    try:
        result = LANES[lane](options)
    except SetupFailed as error:
        say(f"{lane}: {error}")
        result = Result(0, 1)
    return result, time.monotonic() - start


@contextmanager
def beside(
    meanwhile: Sequence[Sequence[str]], arguments: list[str], results: dict[str, tuple[Result, float]], named: bool
) -> Iterator[None]:
    """Runs lanes in processes of their own meanwhile; waits for them, prints what they said, and adds their results."""
    started = []
    folder = bootstrap.cache() / "results"
    folder.mkdir(exist_ok=True)
    for lanes in meanwhile:
        said, told = folder / f"{lanes[0]}-{os.getpid()}.txt", folder / f"{lanes[0]}-{os.getpid()}.json"
        argv = [str(ROOT / "tests/run"), "--results", str(told), *(() if named else ("--unnamed",))]
        argv += [*(word for lane in lanes for word in ("--lane", lane)), *without_lanes(arguments)]
        with said.open("wb") as file:
            started.append((lanes, subprocess.Popen(argv, stdout=file, stderr=file, cwd=ROOT), said, told))
        say(f"=== {' and '.join(lanes)}, meanwhile")
    try:
        yield
    except BaseException:
        for _lanes, process, _said, _told in started:
            process.terminate()  # a signal may have been for this process alone
        raise
    finally:
        for lanes, process, said, told in started:
            process.wait()
            say(f"=== {' and '.join(lanes)}")
            print(said.read_text(errors="replace"), end="", flush=True)
            found = json.loads(told.read_text()) if told.exists() else {}
            for lane in lanes:
                (passed, failed), seconds = found.get(lane, ((0, 1), 0.0))
                results[lane] = Result(passed, failed), seconds
            said.unlink()
            told.unlink(missing_ok=True)


def without_lanes(arguments: list[str]) -> list[str]:
    """The arguments of tests/run, but those that choose lanes."""
    kept = [word for word in arguments if not word.startswith("--lane=")]
    while "--lane" in kept:
        position = kept.index("--lane")
        del kept[position : position + 2]
    return kept


def report(results: dict[str, tuple[Result, float]], begin: float | None = None) -> int:
    """The table of lanes, and the sum as the last line, with the time since ``begin`` (monotonic seconds), else that of all lanes."""
    print(f"\n{'lane':8} {'passed':>7} {'failed':>7} {'seconds':>8}")
    for lane, (result, seconds) in results.items():
        print(f"{lane:8} {result.passed:7} {result.failed:7} {seconds:8.1f}")
    passed = sum(result.passed for result, _ in results.values())
    failed = sum(result.failed for result, _ in results.values())
    whole = sum(seconds for _, seconds in results.values()) if begin is None else time.monotonic() - begin
    print(f"\n{passed} passed, {failed} failed in {whole:.1f} s", flush=True)
    return int(failed > 0 or passed == 0)
