"""The site's own scripts: which there are, in which order they run, and running them.

After the built-in up and before the built-in down, each with the arguments TAP and CONTEXT:

    /etc/ganeti/network/MODE/up     and down, for NICs of this mode; as Ganeti 3.2 calls them: without arguments, ACTION in the
                                    environment, and instead of the built-in. Ganeti's other scripts of up are then left out but
                                    kvm-ifup-custom
    /etc/ganeti/kvm-vif-bridge      up only; as Ganeti 3.0 calls it: without arguments, and instead of the built-in
    /etc/ganeti/kvm-ifup-custom     and kvm-ifdown-custom
    /etc/netcommon/ifup.d/*         and ifdown.d/*, by name, names as run-parts(8) takes them

A file that is executable by nobody is not there, as for Ganeti (`test -x`). A door of ours under such a name is left out.
What begins with kvm- is KVM's: a NIC of Xen has the others only.
"""

from __future__ import annotations

import os
import time

from runtime.environment import undescribed
from runtime.nic import MODES
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from netcommon.process.run import Outcome
    from netcommon.settings.model import Settings
    from runtime.paths import Paths

#: The folder of our doors in this installation.
HOOKS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "hooks")

#: Set for custom scripts: "UUID PID TAP" of the NIC and of the door that runs them, so that a door called by one of them knows; with
#: INSTEAD as the fourth word where the scripts take the place of the built-in up.
GUARD = "NETCOMMON_DOOR"
INSTEAD = "instead"

#: The context of the scripts of ifchange.d: options of a NIC that is up have changed. They alone run while nothing is locked.
CHANGE = "change"

#: Set for custom scripts, another value for each run of one: by it those of its processes are known that nothing else ties to it, and
#: none that an earlier script of the same hook has started on purpose (netcommon.process.descendants).
RUN = "NETCOMMON_SCRIPT"

#: A script finds the usual commands even where the hypervisor gave no PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: More lines of a script's output than these are not written to the log.
LINES = 200


class Script(NamedTuple):
    """One script of the site."""

    path: str
    arguments: bool = True  #: called with TAP and CONTEXT; kvm-vif-bridge is called without arguments
    problem: str = ""  #: why it must not be run, in words; it then counts as failed
    action: str = ""  #: of an override: ACTION, "up" or "down"


class Plan(NamedTuple):
    """What runs for this node's NICs."""

    instead: bool = False  #: the up scripts take the place of the built-in
    up: tuple[Script, ...] = ()
    down: tuple[Script, ...] = ()


class Call(NamedTuple):
    """For which NIC, and in which situation, scripts are called."""

    tap: str
    context: str  #: "up" or one of the contexts of down
    environment: Mapping[str, str]  #: what the hypervisor gave at up; lone surrogates stand for bytes that are no UTF-8
    uuid: str = ""
    phase: str = ""  #: MIGRATION_PHASE
    record: str = ""  #: path of the NIC's record
    instead: bool = False  #: the scripts take the place of the built-in up


class Result(NamedTuple):
    """How one script ended; ``status`` is None where a signal ended it or it did not run."""

    script: Script
    status: int | None = None
    signal: int = 0
    timed_out: bool = False
    output: bytes = b""
    error: str = ""  #: what went wrong, in words; "" if it succeeded

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def begun(self) -> bool:
        return self.status is not None or bool(self.signal) or self.timed_out


class Execute(Protocol):
    """Runs a program and says how it ended: netcommon.process.run.run, or the agent's own way."""

    def __call__(
        self, argv: Sequence[str], environment: Mapping[bytes, bytes], seconds: float, limit: int, clock: Callable[[], float]
    ) -> Outcome: ...


class Reporter(Protocol):
    """What is needed of netcommon.log.Log."""

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...


def order(paths: Paths, settings: Settings, hooks: str = HOOKS, modes: Sequence[str] = MODES, kvm: bool = True) -> Plan:
    """What runs on this node, by its files and ``custom.order``: the overrides of ``modes``, those for KVM only if ``kvm``.

    Not chosen: kvm-vif-bridge instead of the built-in, everything else after it. "after" and "instead" speak of the two
    Ganeti scripts of up that begin with kvm-; without them the built-in runs, unless a mode's override takes its place.
    """
    ours, theirs = overrides(paths, hooks, modes, "up"), overrides(paths, hooks, modes, "down")
    bridge = list(named(paths.ganeti_etc + "/kvm-vif-bridge", hooks, arguments=False)) if kvm and not ours else []
    up = list(named(paths.ganeti_etc + "/kvm-ifup-custom", hooks)) if kvm else []
    down = list(named(paths.ganeti_etc + "/kvm-ifdown-custom", hooks)) if kvm else []
    if bridge and up and os.path.realpath(bridge[0].path) == os.path.realpath(up[0].path):
        up = []  # one script under two names: kvm-vif-bridge is what Ganeti calls
    instead = bool(bridge) if not settings.custom_order else settings.custom_order == "instead" and bool(bridge or up)
    return Plan(
        instead or bool(ours),
        (*ours, *bridge, *up, *_folder(paths.etc + "/ifup.d", hooks)),
        (*theirs, *down, *_folder(paths.etc + "/ifdown.d", hooks)),
    )


def beside(paths: Paths, name: str, hooks: str = HOOKS) -> tuple[Script, ...]:
    """List what runs beside up and down, by name of its folder: "ifchange.d" after options have changed, "endpoint.d" for endpoints."""
    return tuple(_folder(f"{paths.etc}/{name}", hooks))


def overrides(paths: Paths, hooks: str, modes: Sequence[str], action: str) -> list[Script]:
    """The scripts network/MODE/``action`` of ``modes`` (Ganeti 3.2, doc/network.rst)."""
    paths_of = [f"{paths.ganeti_etc}/network/{mode}/{action}" for mode in modes]
    return [script._replace(action=action) for path in paths_of for script in named(path, hooks, arguments=False)]


def recursing(environ: Mapping[str, str], device: str = "", uuid: str = "", proc: str = "/proc") -> bool:
    """Whether a door was called by a custom script that runs for the same NIC: it then has nothing to do.

    ``device`` and ``uuid`` are the called door's NIC, where they are known otherwise than from INTERFACE and INTERFACE_UUID. A call
    for another device or another UUID is another NIC's. A guard that a daemon has inherited from a door long gone says nothing.
    """
    guarded, tap, _instead = _guard(environ, proc)
    if not guarded:
        return False
    uuid, device = uuid or environ.get("INTERFACE_UUID", ""), device or environ.get("INTERFACE", "")
    return (not uuid or uuid.lower() == guarded) and (not device or not tap or device == tap)


def replaced(environ: Mapping[str, str]) -> bool:
    """Tell if the custom script that called a door runs in the place of the built-in up: the door then has joined nothing, nor will."""
    return _guard(environ, "/proc")[2]


def held(environ: Mapping[str, str], proc: str = "/proc") -> tuple[str, ...]:
    """Give UUID and device that are locked as long as the custom script runs that has called us; none where no such script has."""
    guarded, tap, _instead = _guard(environ, proc)
    return (guarded, tap) if guarded and environ.get("NETCOMMON_CONTEXT", "") != CHANGE else ()


def own(environ: Mapping[str, str], device: str, proc: str = "/proc") -> Mapping[str, str]:
    """The environment of a door whose argument names ``device``, without a description that is another NIC's.

    A custom script that calls a door for a second NIC, by its device alone, passes on the description of the NIC it runs for.
    """
    guarded, tap, _instead = _guard(environ, proc)
    if not guarded or not device or device == tap or environ.get("INTERFACE", "") not in ("", tap):
        return environ
    return environ if environ.get("INTERFACE_UUID", "").lower() not in ("", guarded) else undescribed(environ)


def _guard(environ: Mapping[str, str], proc: str) -> tuple[str, str, bool]:
    """UUID and device of the NIC whose custom script has called us, and if that runs instead of the built-in; "", "", False for none."""
    uuid, _, rest = environ.get(GUARD, "").partition(" ")
    pid, _, rest = rest.partition(" ")
    tap, _, word = rest.partition(" ")
    gone = pid.isascii() and pid.isdigit() and not os.path.exists(f"{proc}/{pid}")
    return ("", "", False) if gone else (uuid.lower(), tap, word == INSTEAD)


def environment(call: Call, action: str = "") -> dict[bytes, bytes]:
    """What a script gets: exactly what the hypervisor gave, a PATH in any case, and our own variables.

    An override gets what Ganeti 3.2 gives it: ACTION is ``action``, at a down too, where the rest is of the up.
    """
    added = {
        "NETCOMMON_CONTEXT": call.context,
        "NETCOMMON_MIGRATION_PHASE": call.phase,
        "NETCOMMON_RECORD": call.record,
        GUARD: f"{call.uuid} {os.getpid()} {call.tap}" + (f" {INSTEAD}" if call.instead else ""),
        RUN: f"{os.getpid()} {time.monotonic_ns()}",
    }
    values = {"PATH": PATH, **{name: value for name, value in call.environment.items() if value or name != "PATH"}, **added}
    if action:
        values |= {"ACTION": action, "INTERFACE": call.tap}
        values.pop("MIGRATION_PHASE", None)
        if call.phase:
            values["MIGRATION_PHASE"] = call.phase
    return {os.fsencode(name): os.fsencode(value) for name, value in values.items()}


def run_each(
    scripts: Sequence[Script],
    call: Call,
    settings: Settings,
    deadline: float,
    log: Reporter,
    stop: bool,
    clock: Callable[[], float] = time.monotonic,
    execute: Execute | None = None,
    unbegun: bool = True,  # log those that could not be begun, too
) -> list[Result]:
    """Runs the scripts until ``deadline`` (of ``clock``), by ``execute``; the list ends with the failed one if ``stop``.

    Otherwise each script gets an equal share of the time that is left, so that one that hangs does not cost the others theirs.
    """
    results: list[Result] = []
    for position, script in enumerate(scripts):
        seconds = (deadline - clock()) / (1 if stop else len(scripts) - position)
        result = run(script, call, settings, seconds, clock, execute)
        if unbegun or result.begun:
            _report(result, log)
        results.append(result)
        if stop and not result.ok:
            break
    return results


def run(
    script: Script,
    call: Call,
    settings: Settings,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    execute: Execute | None = None,
) -> Result:
    """Runs one script for at most ``seconds``, if it may be run at all."""
    if script.problem:
        return Result(script, error=f"not run: {script.problem}")
    if execute is None:
        from netcommon.process import run as runner  # subprocess is dear, and most nodes have no script

        execute = runner.run
    argv = [script.path, call.tap, call.context] if script.arguments else [script.path]
    outcome = execute(argv, environment(call, script.action), seconds, settings.custom_output_limit, clock)
    return Result(script, outcome.status, outcome.signal, outcome.timed_out, outcome.output, outcome.text)


def _report(result: Result, log: Reporter) -> None:
    name = result.script.path
    lines = result.output.decode("utf-8", "surrogateescape").splitlines()
    for line in lines[:LINES]:
        log.info(f"{name}: {line}")
    if len(lines) > LINES:
        log.info(f"{name}: {len(lines) - LINES} more lines")
    if result.ok:
        log.info(f"{name} done")
        return
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    log.error(f"custom script {name} {result.error}" + (f": {last[:200]}" if last else ""))


def named(path: str, hooks: str, arguments: bool = True) -> Iterator[Script]:
    """The script at ``path``, if there is one that is not ours."""
    try:
        status = os.stat(path)
    except OSError:
        return
    if not status.st_mode & 0o111 or status.st_mode & 0o170000 == 0o040000:
        return
    from netcommon.scripts import door_files as ours
    from runtime import trust  # only where there is a script

    if not (ours.is_door(path, hooks) or ours.starts_installed(path, hooks)):
        yield Script(path, arguments, trust.distrust(path))


def _folder(path: str, hooks: str) -> Iterator[Script]:
    """The scripts in a folder, by name; other names than run-parts(8) takes are not looked at."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return
    for name in names:
        if name.isascii() and name.replace("-", "_").replace("_", "a").isalnum():
            if os.path.islink(f"{path}/{name}") and not os.path.exists(f"{path}/{name}"):
                yield Script(f"{path}/{name}", problem=f"{path}/{name} is a symbolic link to nothing")
            yield from named(f"{path}/{name}", hooks)
