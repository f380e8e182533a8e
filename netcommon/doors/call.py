"""What every door does around its own convention: settings, node, deadline, log, and the exit status.

0 done; 64 the NIC's description is wrong; 69 the host refused; 75 try again; 78 the settings are wrong.
"""

from __future__ import annotations

import os
import select
import sys

from netcommon.doors.agent_report import tell
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.context import START, Call, Clock, Node, any_changed, open_node
from netcommon.log import Journal, Log, Syslog
from netcommon.scripts.site import own, recursing, replaced
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import CONFIG, OK, UNAVAILABLE, HostRefused, Interrupted, NetcommonError, SettingsInvalid, TryAgain
from runtime.paths import Paths
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from runtime.nic import Nic

    #: What a door does: the exit status, of the environment and the arguments of the call.
    Body = Callable[["Door", Mapping[str, str], Sequence[str]], int]
else:
    import _signal as signal  # without its enums, which cost a hook 2 ms


#: The doors that join a NIC to the network.
JOINING = frozenset({"kvm-ifup", "kvm-nic-setup", "vif-ganeti"})

#: How long a full standard error is waited for (seconds).
PATIENCE = 0.5

#: Beyond the hook's own limit the process ends itself: something below us did not keep its time limit (seconds).
OVERTIME = 5.0

#: What tells a hook to end, unless its caller has it ignored. Ctrl-C reaches the hooks of a QEMU in a terminal too, and so does the end of
#: the terminal: a hook that died of that would leave its NIC half done.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

#: What a signal leaves for undoing what was begun, at least (seconds): the scripts of down in a rollback have 2 of them.
WAY_BACK = 7.0


class Door:
    """One run of one door. ``environ``, ``parent``: the environment and the parent's process id of whoever was called; else this one's."""

    def __init__(
        self, name: str, paths: Paths | None = None, clock: Clock | None = None, environ: Mapping[str, str] = os.environ, parent: int = 0
    ) -> None:
        self.name, self.parent = name, parent or os.getppid()
        self.paths, self.clock = paths or Paths(), clock or Clock()
        self.started = self.clock.now()
        self.settings = Settings()
        self._syslog = Syslog(self.paths.log)
        self.log = Log(Journal(self.paths.journal, self._syslog))
        self.mode = environ.get("MODE", "")  #: of the NIC, as far as it is known
        self._broken: SettingsInvalid | None = None
        self._node: Node | None = None

    def load(self) -> None:
        """Reads the settings, before there is anything to log. What is wrong with them is for ``node`` to say."""
        try:
            self.settings = load(self.paths)
        except SettingsInvalid as error:
            self._broken = error
        self._syslog.facility = self.settings.syslog_facility

    def node(self, strict: bool) -> Node:
        """The node, by the settings. A broken settings file is an error if ``strict``; else the defaults serve, and it is said."""
        if self._broken and strict:
            raise self._broken
        if self._broken:
            self.log.warning(f"the settings are broken, the defaults are used: {self._broken}")
            self.settings = self.settings._replace(broken=str(self._broken))
        for line in self.settings.renamed:
            self.log.warning(line)
        self._node = self.open()
        return self._node

    def open(self) -> Node:
        """The node, by the settings that are in force. Raises TryAgain or HostRefused."""
        limit(self.settings.hook_timeout - (self.clock.now() - self.started))
        return open_node(self.paths, self.settings, self.clock, closes=self.log.close)

    def perform(self, work: Callable[[], int]) -> int:
        """The exit status of ``work``; what it raises is an error in the log."""
        try:
            return work()
        except (NetcommonError, Interrupted) as error:
            self.log.error(str(error))
            return error.status
        except Exception as error:  # whatever it is, the hypervisor gets an answer and the log the place
            self.log.error(f"{type(error).__name__}: {error} ({_place(error)})")
            return UNAVAILABLE

    def finish(self) -> None:
        """Says what was wrong with files met on the way: they are in quarantine, or left alone."""
        for problem in self._node.store.problems if self._node else ():
            self.log.warning(problem)

    def lingering(self) -> list[int]:
        """See LinuxHost.lingering."""
        host = self._node.host if self._node else None
        return host.lingering() if isinstance(host, LinuxHost) else []

    def call(self, context: str = START, phase: str = "", nic: Nic | None = None, final: bool = False) -> Call:
        """The call as the lifecycle wants it; its lines bear the NIC's names."""
        if nic is not None:
            self.log = self.log.bind(nic.instance, nic.index, nic.uuid, nic.interface)
            self.mode = nic.mode
        deadline = self.started + self.settings.hook_timeout
        return Call(self.log, deadline, self.name, context, phase, self.parent, final)


def end_due(node: Node, call: Call) -> None:
    """Ends a part of what was changed of NICs for a while, where the time is over and no agent has done it. Raises nothing."""
    if not any_changed(node):
        return
    from runtime.kept import none_over  # on most nodes nothing was ever changed

    if not none_over(node.paths, node.identity.boot, node.clock.now(), node.clock.wall()):
        from netcommon.lifecycle import ends  # with most hooks nothing ends

        try:
            ends.end_some(node, call)
        except Interrupted as error:  # the door's own NIC is up or down
            call.log.warning(f"{ends.LASTING}: {error}")


def run(name: str, body: Body, device: str = "", leaving: bool = False) -> NoReturn:
    """Runs a door, with the environment and the arguments, and ends the process with its status; a failure is said in one line on stderr.

    ``device`` is the one that the arguments name, if they do. ``leaving``: the call only undoes, and what it leaves is gc's.
    """
    open_standard()
    own_signals()
    if recursing(os.environ, device):
        os._exit(_answer_script(name, leaving))
    door = Door(name)

    def work() -> int:
        try:
            limit(door.settings.hook_timeout)
            door.load()
            if os.geteuid() != 0:
                raise TryAgain("needs root; what is left is undone by gc") if leaving else HostRefused("needs root: nothing was done")
            return body(door, own(os.environ, device), sys.argv[1:])
        finally:
            no_limit()

    status = door.perform(work)
    door.finish()
    _say(door.log.summary())
    try:
        tell(door.paths.state, name, door.mode, status, door.clock.now() - door.started)
        lingering = door.lingering()
        if lingering:
            from netcommon.doors.deferred_close import close_apart  # few calls need it

            close_apart(lingering)
    except Exception:
        pass  # the verdict stands, whatever becomes of what follows it: such as a module that an upgrade has just replaced
    os._exit(status)  # nothing is left to tidy, and the interpreter's own end costs a millisecond


def _answer_script(name: str, leaving: bool) -> int:
    """The exit status for a site's script that called the door for the NIC that a door is at work on already.

    The built-in up was done before the script, or a down follows it: then all is well. A script that runs in the place of the built-in up
    must not take the NIC for joined: nothing of ours has been done, and whoever runs the script holds the NIC's locks.
    """
    if leaving or name not in JOINING or not replaced(os.environ):
        return OK
    _say(
        f"netcommon: error: {name} did nothing: a custom script called it for the NIC that this script sets up instead of the built-in. "
        'Let the script run after the built-in: [custom] order = "after", or as a script in ifup.d (docs/custom-scripts.md)\n'
    )
    return CONFIG


def open_standard() -> None:
    """Opens on /dev/null what of descriptors 0, 1 and 2 the caller has closed: no file or socket of ours shall be taken for an output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest free number, which is this one: open(2)
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def own_signals() -> None:
    """Undo what of the caller's handling of signals would change ours, and that of the scripts and programs that we start.

    A blocked signal stays blocked through execve(2): without SIGALRM no time limit would hold. Where SIGCHLD is ignored the kernel tells
    nobody how a child ended (wait(2)), and a script that failed would count as done.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def limit(seconds: float) -> None:
    """The process ends its work OVERTIME after ``seconds``, whatever it hangs in; so it does at what is ENDING. What was begun is undone.

    That has WAY_BACK at least, from the signal on, and another one does not cut it short. Whatever then still hangs is ended again.
    """

    told: list[int] = []

    def ended(number: int, _frame: object) -> None:
        if told and number != signal.SIGALRM:
            return  # the way back has begun: it is what was asked for, and it has its time
        told.append(number)
        left, _interval = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, max(left, WAY_BACK))
        raise Interrupted("the time limit of the hook is over" if number == signal.SIGALRM else f"ended by signal {number}")

    for number in (signal.SIGALRM, *ENDING):
        if number in (signal.SIGALRM, signal.SIGTERM) or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, ended)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.0) + OVERTIME)


def no_limit() -> None:
    """The work has ended: no signal changes what it came to, or how that is said. Programs that are started have the signals' defaults."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGALRM, *ENDING):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""


def _say(text: str) -> None:
    """To stderr, which may be closed: then nobody listens; or a full pipe: whoever does not read within PATIENCE is not waited for."""
    if sys.stderr is None:  # it was closed when we began: whatever has its number now is no output
        return
    data = text.encode("utf-8", "backslashreplace")
    try:
        descriptor = sys.stderr.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        # a pipe that takes anything takes PIPE_BUF bytes at once, 4096 (pipe(7))
        while data and poll.poll(PATIENCE * 1000):
            data = data[os.write(descriptor, data[:4096]) :]
    except (OSError, ValueError):
        return
