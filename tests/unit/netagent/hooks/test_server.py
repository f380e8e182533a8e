"""The agent's side of a hook's call: what it takes, what it hands back, and that nothing is begun before the hook says so."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netagent.hooks import server as serving
from netagent.hooks import session as warm
from netagent.hooks.protocol import COMMUNICATING, DOORS, GUARDED, SCRIPTS, SETTINGS, Given, Latest, handed_back, limit, read
from netagent.hooks.server import Serving
from netagent.service import Service
from netcommon.doors.agent_report import SO_NETNS_COOKIE
from netcommon.doors.call import Door
from netcommon.host.api.host import Identity
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.context import Clock
from netcommon.scripts.site import GUARD
from netcommon.settings.model import Settings
from runtime.errors import NicInvalid
from runtime.paths import Paths
from tests.support.netns import wait_until

ENVIRON = {"MODE": "bridged", "INTERFACE": "tap0"}


def message(name: str = "kvm-ifup", argv: Sequence[str] = ("tap0",), environ: Mapping[str, str] = ENVIRON, pid: int = 0) -> bytes:
    """As hooks/launcher makes it."""
    words = ["netcommon-1", name, str(pid or os.getpid()), "4242", str(len(argv)), *argv]
    words += [f"{key}={value}" for key, value in environ.items()]
    return "\0".join([*words, ""]).encode("utf-8", "surrogateescape")


class TestReading:
    def test_a_call(self) -> None:
        found = read(message("down", ["b'tap0'", "false"], {"A": "b=c\n", "X": "\udcff", "EMPTY": ""}, 17))
        assert found == Given("down", 17, 4242, ["b'tap0'", "false"], {"A": "b=c\n", "X": "\udcff", "EMPTY": ""})

    def test_what_the_environment_holds_is_read_as_by_os(self) -> None:
        assert read(message() + b"A=1\0A=2\0none\0=x\0") == Given("kvm-ifup", os.getpid(), 4242, ["tap0"], {**ENVIRON, "A": "1", "": "x"})

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"status\n",
            message()[:9],
            message().replace(b"netcommon-1", b"netcommon-2"),
            message("kvm-ifsideways"),
            message("vif-ganeti"),
            message().replace(b"4242", b"-4"),
            message().replace(b"4242", b"\xd9\xa3"),
            message().replace(b"\0001\0tap0", b"\000900\0tap0"),
            message(environ={"A": "x" * (1 << 17)}),
        ],
    )
    def test_what_is_no_call(self, data: bytes) -> None:
        assert read(data) is None


class TestHandingBack:
    @pytest.fixture
    def paths(self, tmp_path: Path) -> Paths:
        made = Paths.under(str(tmp_path))
        for folder in (made.etc, made.ganeti_etc):
            os.makedirs(folder)
        return made

    def why(self, paths: Paths, *argv: str, **environ: str) -> str:
        return handed_back(Given("kvm-ifup", 1, 2, argv, {**ENVIRON, **environ}), Settings(), paths)

    def test_nothing_of_the_site(self, paths: Paths) -> None:
        assert self.why(paths, "tap0") == ""

    @pytest.mark.parametrize(
        "script", ["kvm-ifup-custom", "kvm-ifdown-custom", "kvm-vif-bridge", "network/ext/down", "network/bridged/up", "kvm-ifup-os"]
    )
    def test_a_script_of_ganetis(self, paths: Paths, script: str) -> None:
        path = Path(paths.ganeti_etc, script)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        assert self.why(paths, "tap0") == ""
        path.chmod(0o755)
        assert self.why(paths, "tap0") == SCRIPTS

    @pytest.mark.parametrize("folder", ["ifup.d", "ifdown.d"])
    def test_a_script_of_ours(self, paths: Paths, folder: str) -> None:
        path = Path(paths.etc, folder, "site")
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        assert self.why(paths, "tap0") == SCRIPTS

    @pytest.mark.parametrize(
        "link", ["", "network", "network/routed", "network/routed/up", "kvm-vif-bridge", "kvm-ifdown-custom", "kvm-ifup-os"]
    )
    def test_a_link_of_ganetis_to_what_is_not_to_be_seen(self, paths: Paths, link: str) -> None:
        """The sandbox of the agent's unit may hide where it leads (PrivateTmp=): a hook sees it."""
        self.leads_nowhere(paths, f"{paths.ganeti_etc}/{link}".rstrip("/"))

    @pytest.mark.parametrize("link", ["", "ifup.d", "ifdown.d", "ifup.d/site"])
    def test_a_link_of_ours_to_what_is_not_to_be_seen(self, paths: Paths, link: str) -> None:
        self.leads_nowhere(paths, f"{paths.etc}/{link}".rstrip("/"))

    def leads_nowhere(self, paths: Paths, link: str) -> None:
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.isdir(link):
            os.rmdir(link)
        os.symlink(f"{paths.etc}.hidden", link)
        assert self.why(paths, "tap0") == SCRIPTS
        os.remove(link)
        assert self.why(paths, "tap0") == ""

    @pytest.mark.parametrize("link", ["ganeti", "ganeti/network", "ganeti/network/routed", "etc", "etc/ifup.d", "etc/ifdown.d"])
    def test_a_link_to_a_folder_that_is_empty(self, paths: Paths, link: str) -> None:
        """An empty one may be mounted over it for the agent alone (PrivateTmp=, TemporaryFileSystem=, InaccessiblePaths=)."""
        first, _slash, rest = link.partition("/")
        os.mkdir(f"{paths.etc}.hidden")
        self.leads_nowhere(paths, f"{paths.ganeti_etc if first == 'ganeti' else paths.etc}/{rest}".rstrip("/"))

    def test_files_of_other_names_are_nothing(self, paths: Paths) -> None:
        for path in (f"{paths.ganeti_etc}/network/other/up", f"{paths.ganeti_etc}/vnc-cluster-password", f"{paths.etc}/ifchange.d/site"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch(0o755)
        os.symlink("nowhere", f"{paths.ganeti_etc}/instance-debootstrap")
        assert self.why(paths, "tap0") == ""

    def test_a_call_of_a_script(self, paths: Paths) -> None:
        assert self.why(paths, "tap1", **{GUARD: f"uuid {os.getpid()} tap0"}) == GUARDED

    def test_instance_communication(self, paths: Paths) -> None:
        assert self.why(paths, INTERFACE="gnt.com.0") == COMMUNICATING
        assert self.why(paths, "b'gnt.com.0'", INTERFACE="") == COMMUNICATING


class TestLatestSettings:
    def test_they_are_read_when_the_file_changes(self, tmp_path: Path) -> None:
        now = 0.0
        paths = Paths.under(str(tmp_path))
        os.makedirs(paths.etc)
        latest = Latest(paths, lambda: now)
        none = latest.get()
        assert none == (Settings(), "") and latest.get()[0] is none[0]
        Path(paths.config).write_text("[hook]\ntimeout = 12\n")
        assert latest.get()[0] == Settings(hook_timeout=12.0)
        Path(paths.config).write_text("[hook]\ntimeout = 13\n")  # as long as before, and perhaps in the same tick
        thirteen = latest.get()[0]
        assert thirteen == Settings(hook_timeout=13.0) and latest.get()[0] is thirteen
        now = os.stat(paths.config).st_ctime + 10
        assert latest.get()[0] is thirteen
        Path(paths.config).write_text("nonsense")
        assert latest.get() == (None, "settings")
        os.unlink(paths.config)
        assert latest.get() == (Settings(), "")

    def test_a_folder_that_we_may_not_write_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = Paths.under(str(tmp_path))
        os.makedirs(paths.etc)
        os.makedirs(tmp_path / "hosts")
        Path(paths.config).write_text(f'[dhcp]\ndnsmasq_folder = "{tmp_path}/hosts"\n')
        assert Latest(paths, lambda: 0.0).get()[1] == ""
        monkeypatch.setattr("netagent.hooks.protocol.os.access", lambda path, mode: path != f"{tmp_path}/hosts")
        assert Latest(paths, lambda: 0.0).get()[1] == "folders"

    def test_a_folder_that_comes_and_goes_while_the_file_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that was made after the agent's start is read-only in its sandbox; the settings are the same all the time."""
        paths, hosts = Paths.under(str(tmp_path)), tmp_path / "hosts"
        os.makedirs(paths.etc)
        Path(paths.config).write_text(f'[dhcp]\ndnsmasq_folder = "{hosts}"\n')
        monkeypatch.setattr("netagent.hooks.protocol.os.access", lambda path, mode: path != str(hosts))
        latest = Latest(paths, lambda: 1e10)
        assert latest.get()[1] == ""
        hosts.mkdir()
        assert latest.get()[1] == "folders"
        hosts.rmdir()
        assert latest.get()[1] == ""


def test_what_a_call_has_waited_for_in_vain_shortens_nothing_of_the_next(tmp_path: Path) -> None:
    """A cold hook has a host of its own: it knows of no other's bad luck with Open vSwitch."""
    host, settings = LinuxHost(Paths.under(str(tmp_path))), Settings()
    node: Any = SimpleNamespace(host=host, settings=settings, store=SimpleNamespace(stands=lambda: True))
    database = host.ovsdb
    database.deadline.lost()
    kept = warm.Kept(Paths.under(str(tmp_path)), Clock(), lambda _settings: node)
    assert kept.node(settings) is kept.node(settings) is node
    assert host.ovsdb is database and not database.deadline.spent


def test_settings_in_a_folder_that_is_not_to_be_seen_are_no_defaults(tmp_path: Path) -> None:
    """The file itself may be a link too: tests/unit/netcommon/settings."""
    paths = Paths.under(str(tmp_path))
    os.makedirs(os.path.dirname(paths.etc), exist_ok=True)
    os.symlink(f"{tmp_path}/root/conf", paths.etc)
    latest = Latest(paths, lambda: 1e10)
    assert latest.get() == (None, SETTINGS)
    os.makedirs(f"{tmp_path}/root/conf")
    assert latest.get() == (Settings(), ""), "a folder without the file, through a link"


class Agent:
    """What serves, without a host: ``body`` does the work of every door."""

    def __init__(self, root: Path, netns: int) -> None:
        self.service = Service(Paths.under(str(root))._replace(proc="/proc"), Identity("boot", netns))
        os.makedirs(self.service.state.paths.etc)
        self.serving = Serving(self.service.state, self.opened)
        self.calls: list[tuple[str, int, Mapping[str, str], Sequence[str]]] = []
        self.body: Callable[[Door], int] = lambda door: 0
        self.path = f"{root}/run/netcommon/agent/hooks-{os.stat('/proc/self/ns/net').st_ino}"

    def opened(self, _settings: Settings) -> Any:
        raise AssertionError("no node is opened here")

    def work(self, door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> int:
        self.calls.append((door.name, door.parent, environ, argv))
        return self.body(door)

    def hook(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.settimeout(10)
        made.connect(self.path)
        return made

    def said(self, data: bytes) -> bytes:
        """The first answer to a message; b"": the hook is to do it itself."""
        with self.hook() as hook:
            try:
                hook.send(data)
                return hook.recv(1 << 16)
            except (BrokenPipeError, ConnectionResetError):
                return b""  # it has hung up before it was told

    def served(self, number: int) -> None:
        """Waits until so many calls are counted, which they are after their answer."""
        wait_until(lambda: self.serving.status()["calls served"] == number and not self.serving.status()["calls at work"], 10)

    def call(self, data: bytes = b"") -> bytes:
        """The verdict."""
        with self.hook() as hook:
            hook.send(data or message())
            assert hook.recv(64) == b"ready %d" % limit(Settings())
            hook.send(b"go")
            return hook.recv(1 << 16)

    def handed_back(self, why: str) -> float:
        return self.service.state.metrics.value("netcommon_hook_handed_back_total", reason=why)


class AtWork:
    """Calls that are at work until they may end."""

    def __init__(self, agent: Agent) -> None:
        self._agent, agent.body = agent, self._work
        self._begun, self._go_on = threading.Semaphore(0), threading.Event()
        self._hooks: list[threading.Thread] = []
        self._answers: list[bytes] = []

    def _work(self, door: Door) -> int:
        self._begun.release()
        return 0 if self._go_on.wait(10) else 1

    def more(self, count: int) -> None:
        """One after the other is begun."""
        for _ in range(count):
            self._hooks.append(threading.Thread(target=lambda: self._answers.append(self._agent.call())))
            self._hooks[-1].start()
            assert self._begun.acquire(timeout=10)

    def ended(self) -> list[bytes]:
        """Their answers."""
        self._go_on.set()
        for hook in self._hooks:
            hook.join(10)
        return self._answers


def own_namespace() -> int:
    with socket.socket(socket.AF_UNIX) as any_socket:
        return int.from_bytes(any_socket.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), "little")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    made = Agent(tmp_path, own_namespace())
    doors = {name: (door, made.work) for name, (door, _body) in DOORS.items()}
    monkeypatch.setattr(warm, "DOORS", doors)
    made.serving.configure(Settings())
    yield made
    made.serving.close(10)
    made.service.close()
    assert not os.path.exists(made.path)


def test_a_call_is_done_as_the_hook_would_do_it(agent: Agent) -> None:
    assert agent.call(message("up", ["b'tap0'"], {**ENVIRON, "LC_ALL": "C"})) == b"0\n"
    assert agent.calls == [("kvm-nic-setup", 4242, {**ENVIRON, "LC_ALL": "C"}, ["b'tap0'"])]
    agent.served(1)
    labels = {"door": "kvm-nic-setup", "mode": "bridged", "path": "warm"}
    assert agent.service.state.metrics.value("netcommon_hook_seconds", **labels) == 1
    assert agent.service.state.metrics.value("netcommon_hook_calls_total", outcome="ok", **labels) == 1
    assert agent.serving.status() == {"calls served": 1, "calls at work": 0, "calls handed back": 0}


def test_what_went_wrong_is_for_the_hooks_standard_error(agent: Agent) -> None:
    def refuses(door: Door) -> int:
        door.log.warning("mind this")
        raise NicInvalid("MODE", "bri\ndged", "a mode")

    agent.body = refuses
    status, *lines, last = agent.call().split(b"\n")
    assert (status, lines[0], last) == (b"64", b"netcommon: warning: mind this", b"") and len(lines) == 2
    assert lines[1].startswith(b"netcommon: error: MODE")
    agent.body = lambda door: 1 // 0
    status, text = agent.call().split(b"\n", 1)
    assert status == b"69" and b"ZeroDivisionError" in text


def test_a_long_answer_is_cut(agent: Agent) -> None:
    def talks(door: Door) -> int:
        for number in range(30):
            door.log.warning(f"{number} " + "x" * 6000)
        return 0

    agent.body = talks
    assert agent.call()[:2] == b"0\n"


@pytest.mark.parametrize("data", [b"nonsense", message(pid=1), message("nosuch")])
def test_who_is_no_hook_of_ours_does_it_himself(agent: Agent, data: bytes) -> None:
    assert agent.said(data) == b"" and agent.calls == []
    assert agent.handed_back("malformed") + agent.handed_back("stranger") == 1


def test_a_hook_of_another_network_namespace_does_it_itself(tmp_path: Path) -> None:
    other = Agent(tmp_path, own_namespace() + 1)
    other.serving.configure(Settings())
    try:
        assert other.said(message()) == b""
        assert other.handed_back("stranger") == 1
    finally:
        other.serving.close(10)
        other.service.close()


def test_settings_that_are_broken_are_the_hooks_to_tell(agent: Agent) -> None:
    Path(agent.service.state.paths.config).write_text("[nosuch]\n")
    assert agent.said(message()) == b"" and agent.handed_back("settings") == 1
    os.unlink(agent.service.state.paths.config)
    assert agent.call() == b"0\n"


@pytest.mark.parametrize("last", [b"", b"no", b"go away"])
def test_nothing_is_done_before_the_hook_says_so(agent: Agent, last: bytes) -> None:
    with agent.hook() as hook:
        hook.send(message())
        assert hook.recv(64).startswith(b"ready ")
        if last:
            hook.send(last)
            assert hook.recv(64) == b""
    assert agent.call() == b"0\n" and len(agent.calls) == 1


def test_a_hook_that_died_meanwhile_is_served_to_the_end(agent: Agent) -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def works(door: Door) -> int:
        begun.set()
        assert go_on.wait(10)
        over.set()
        return 0

    agent.body = works
    with agent.hook() as hook:
        hook.send(message())
        hook.recv(64)
        hook.send(b"go")
        assert begun.wait(10)
    go_on.set()
    assert over.wait(10)
    assert agent.call() == b"0\n"
    agent.served(2)


def test_when_all_are_at_work_the_next_is_told_at_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes long holds nobody: not while there is a thread, nor when there is none."""
    monkeypatch.setattr(serving, "MOST", 3)
    at_work = AtWork(agent)
    at_work.more(3)
    assert agent.said(message()) == b"" and agent.said(message()) == b""
    assert agent.handed_back("busy") == 2 and agent.serving.status()["calls at work"] == 3
    assert agent.serving.hanging() == ""
    assert at_work.ended() == [b"0\n"] * 3
    agent.served(3)
    assert agent.call() == b"0\n"


def test_one_is_left_to_accept_after_the_socket_was_off_and_on(agent: Agent) -> None:
    """While calls of before are at work, of which there may be more than there are threads since."""
    at_work = AtWork(agent)
    at_work.more(2)
    agent.serving.close(0)
    agent.serving.configure(Settings())
    at_work.more(2)
    assert at_work.ended() == [b"0\n"] * 4


@pytest.mark.parametrize("problem", [OSError(errno.EMFILE, "too many"), RuntimeError("can't start new thread")])
def test_when_there_can_be_no_thread_more(agent: Agent, monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    """The call is served all the same, and the next one has the thread more."""

    def refuses(*_: object) -> None:
        raise problem

    with monkeypatch.context() as patch:
        if isinstance(problem, OSError):
            patch.setattr(socket.socket, "dup", refuses)
        else:
            patch.setattr(threading.Thread, "start", refuses)
        assert agent.call() == b"0\n"
        agent.served(1)
    assert agent.serving.hanging() == ""
    assert agent.call() == b"0\n" and agent.call() == b"0\n"
    agent.served(3)


def test_a_call_without_end_is_noticed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def works(door: Door) -> int:
        begun.set()
        return 0 if go_on.wait(10) else 1

    agent.body = works
    hook = threading.Thread(target=agent.call)
    hook.start()
    assert begun.wait(10)
    monkeypatch.setattr(serving, "HANGS", -1000.0)
    assert f"kvm-ifup of process {os.getpid()}" in agent.serving.hanging()
    go_on.set()
    hook.join(10)


def test_it_can_be_switched_off_and_on(agent: Agent) -> None:
    agent.serving.configure(Settings(agent_hook_socket=False))
    assert not os.path.exists(agent.path)
    agent.serving.configure(Settings())
    agent.serving.configure(Settings())
    assert agent.call() == b"0\n"
