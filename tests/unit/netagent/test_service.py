"""The agent as a service: one per namespace, what systemd is told, signals, settings that are read again, and where metrics can be had."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from netagent.observe import exporter, metrics_server
from netagent.observe.control import ask
from netagent.observe.metrics import Metrics
from netagent.observe.metrics_server import MOST, Server
from netagent.service import LOCK, TURN, Service
from netagent.start_delay import LONGEST, SHORTEST, start_delay
from netcommon.doors.agent_report import folder
from netcommon.host.api.host import Identity
from netcommon.lifecycle.context import Clock
from netcommon.process.notify import Notifier
from netcommon.process.socket_file import SocketFile
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, SettingsInvalid, TryAgain
from runtime.folder import Folder
from runtime.paths import Paths
from tests.support.bootstrap import PYTHON
from tests.support.netns import slowness, wait_until, waited

HERE = Identity("boot-1", 4711)


class Manager:
    """What systemd would hear."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + path[1:] if path.startswith("@") else path)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


class Agent:
    """What the service needs, and a note of what it was told."""

    def __init__(self) -> None:
        self.settings: list[Settings] = []
        self.stopped = 0
        self.trouble = ""

    def reloaded(self, settings: Settings) -> None:
        self.settings.append(settings)

    def stop(self) -> None:
        self.stopped += 1

    def status(self) -> Mapping[str, object]:
        return {"nics": {"up": 3}}

    def hanging(self) -> str:
        return self.trouble


@pytest.fixture
def root(state: str) -> Path:
    """What is / to the service; short, too."""
    os.makedirs(f"{state}/etc/netcommon")
    os.makedirs(f"{state}/run")
    return Path(state)


@pytest.fixture
def paths(root: Path) -> Paths:
    return Paths.under(str(root))


@pytest.fixture
def manager(root: Path) -> Iterator[Manager]:
    made = Manager(f"{root}/notify")
    yield made
    made.close()


class Time:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def time_() -> Time:
    return Time()


Make = Callable[..., Service]


@pytest.fixture
def make(paths: Paths, manager: Manager, time_: Time) -> Iterator[Make]:
    made: list[Service] = []

    def service(opened: bool = True, **environ: str) -> Service:
        clock = Clock(lambda: time_.now, lambda: 1.7e9)
        one = Service(paths, HERE, clock, {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "8000000", **environ})
        made.append(one)
        if opened:
            one.open()
        return one

    yield service
    for one in made:
        one.close()


def write(paths: Paths, text: str) -> None:
    with open(paths.config, "w", encoding="utf-8") as file:
        file.write(text)


class TestNotifier:
    """sd_notify(3)."""

    def test_what_is_said(self, manager: Manager) -> None:
        one = Notifier({"NOTIFY_SOCKET": manager.path})
        one.ready()
        one.status("5 NICs\nREADY=0")
        one.status("5 NICs\nREADY=0")
        one.alive()
        one.stopping()
        assert manager.heard() == ["READY=1", "STATUS=5 NICs READY=0", "WATCHDOG=1", "STOPPING=1"]
        one.reloading()
        first, second = manager.heard()[0].split("\n")
        assert first == "RELOADING=1"
        assert abs(int(second.removeprefix("MONOTONIC_USEC=")) / 1e6 - time.monotonic()) < 60

    def test_an_abstract_socket(self) -> None:
        manager = Manager(f"@netcommon-test-{os.getpid()}")
        Notifier({"NOTIFY_SOCKET": manager.path}).ready()
        assert manager.heard() == ["READY=1"]
        manager.close()

    @pytest.mark.parametrize("address", ["", "relative", "vsock:2:1", "/nowhere/at/all"])
    def test_nobody_to_tell(self, address: str) -> None:
        Notifier({"NOTIFY_SOCKET": address}).ready()

    def test_a_manager_that_reads_nothing_does_not_hold_us_up(self, manager: Manager) -> None:
        one = Notifier({"NOTIFY_SOCKET": manager.path})
        for _ in range(2000):
            one.alive()
        assert 0 < len(manager.heard()) < 2000

    @pytest.mark.parametrize(
        ("environ", "seconds"),
        [
            ({"WATCHDOG_USEC": "60000000"}, 60.0),
            ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "77"}, 60.0),
            ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "78"}, 0.0),
            ({"WATCHDOG_USEC": "-1"}, 0.0),
            ({"WATCHDOG_USEC": "x"}, 0.0),
            ({}, 0.0),
        ],
    )
    def test_the_watchdog_is_ours(self, manager: Manager, environ: dict[str, str], seconds: float) -> None:
        assert Notifier({"NOTIFY_SOCKET": manager.path, **environ}, 77).watchdog == seconds

    def test_no_watchdog_without_a_manager(self) -> None:
        assert Notifier({"WATCHDOG_USEC": "60000000"}).watchdog == 0.0


class TestAlone:
    """One agent for each network namespace."""

    def test_the_second_is_refused_and_names_the_first(self, make: Make) -> None:
        make()
        with pytest.raises(TryAgain, match=rf"process {os.getpid()}\Z"):
            make()

    def test_after_its_end_another_may_begin(self, make: Make) -> None:
        make().close()
        make()

    def test_after_a_kill_too(self, make: Make, paths: Paths) -> None:
        """The lock is the kernel's; the file of the killed one says nothing."""
        where = folder(paths.state, HERE.netns)
        Folder.make(where).close()
        code = f"""import fcntl, time
file = open({where + "/" + LOCK!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(1, file=file, flush=True)
print(flush=True)
time.sleep(60)"""
        with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            with pytest.raises(TryAgain, match=r"process 1\Z"):
                make()
            other.kill()
        make()

    def test_a_child_of_a_killed_one_has_the_lock_for_a_moment(self, make: Make, paths: Paths) -> None:
        """One that it has just made, and that runs no other program yet."""
        where = folder(paths.state, HERE.netns)
        Folder.make(where).close()
        held = os.open(f"{where}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        ends = threading.Timer(0.2, os.close, [held])
        ends.start()
        make()
        ends.join()

    def test_in_another_namespace_another_one(self, make: Make, paths: Paths) -> None:
        make()
        other = Service(paths, HERE._replace(netns=4712), environ={})
        other.open()
        other.close()

    @pytest.mark.parametrize("text", ["", "x\n\x1b[2J", "9" * 40])
    def test_a_lock_file_that_says_nothing_forges_nothing(self, make: Make, paths: Paths, text: str) -> None:
        make()
        Path(folder(paths.state, HERE.netns), LOCK).write_text(text)
        with pytest.raises(TryAgain) as caught:
            make()
        assert str(caught.value).isprintable()

    def test_a_link_instead_of_the_lock_is_refused(self, make: Make, paths: Paths, root: Path) -> None:
        where = folder(paths.state, HERE.netns)
        Folder.make(where).close()
        os.symlink(f"{root}/elsewhere", f"{where}/{LOCK}")
        with pytest.raises(HostRefused, match="lock"):
            make()
        assert not (root / "elsewhere").exists()


class TestSignals:
    def send(self, service: Service, number: int) -> None:
        os.kill(os.getpid(), number)
        service.signalled()

    def test_term_stops(self, make: Make, manager: Manager) -> None:
        service, agent = make(), Agent()
        service.serve(agent)
        self.send(service, signal.SIGTERM)
        assert agent.stopped == 1
        assert manager.heard() == ["STOPPING=1"]
        assert ask(service.state.paths.state, HERE.netns)["state"] == "stopping"

    def test_hup_reads_the_settings_again(self, make: Make, manager: Manager, paths: Paths) -> None:
        write(paths, "[agent]\nresync = 30\n")
        service, agent = make(), Agent()
        service.serve(agent)
        assert service.state.settings.agent_resync == 30
        write(paths, "[agent]\nresync = 20\n[repair]\nrule = 'off'\n[log]\nfacility = 'local3'\n")
        self.send(service, signal.SIGHUP)
        assert [settings.agent_resync for settings in agent.settings] == [20]
        assert service.state.settings.repair == {"rule": "off"}
        assert {sender.facility for sender in service.logs.senders} == {"local3"}
        assert [line.split("\n")[0] for line in manager.heard()] == ["RELOADING=1", "READY=1"]

    def test_a_broken_file_keeps_the_old_ones_and_says_so(self, make: Make, manager: Manager, paths: Paths) -> None:
        write(paths, "[agent]\nresync = 30\n")
        service, agent = make(), Agent()
        service.serve(agent)
        write(paths, "[agent]\nresync = 20\nreap_cap = 'many'\nresnyc = 1\n")
        self.send(service, signal.SIGHUP)
        assert service.state.settings.agent_resync == 30 and agent.settings == []
        said = ask(paths.state, HERE.netns)
        assert said["settings"].startswith("broken, those from before are in force: config.toml:3: agent.reap_cap = 'many'")
        assert "config.toml:4: unknown setting agent.resnyc" in said["settings"]
        assert list(said["alarms"]) == ["settings"]
        assert service.state.metrics.value("netcommon_alarms", name="settings") == 1
        assert [line.split("\n")[0] for line in manager.heard()] == ["RELOADING=1", "READY=1"]
        write(paths, "[agent]\nresync = 20\n")
        self.send(service, signal.SIGHUP)
        assert service.state.settings.agent_resync == 20
        said = ask(paths.state, HERE.netns)
        assert (said["settings"], said["alarms"]) == ("in force", {})

    def test_a_burst_of_signals_is_one(self, make: Make, paths: Paths) -> None:
        service, agent = make(), Agent()
        service.serve(agent)
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGHUP)
        service.signalled()
        service.signalled()
        assert len(agent.settings) == 1

    def test_the_handlers_are_given_back(self, make: Make) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
        make().close()
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before

    def test_without_good_settings_it_does_not_begin(self, make: Make, paths: Paths) -> None:
        write(paths, "[agent]\nresync = 0\n")
        with pytest.raises(SettingsInvalid, match=r"agent\.resync"):
            make()


class TestLife:
    """Signs of life come from the loop alone, and only while the workers get on."""

    def test_a_sign_at_half_the_time(self, make: Make, manager: Manager, time_: Time) -> None:
        service = make()
        service.serve(Agent())
        assert service.tick() == time_.now + 4.0
        assert manager.heard() == ["WATCHDOG=1"]

    def test_without_a_watchdog_it_turns_all_the_same(self, make: Make, time_: Time) -> None:
        assert make(WATCHDOG_USEC="").tick() == time_.now + TURN
        assert make(opened=False, WATCHDOG_USEC="600000000").tick() == time_.now + TURN

    def test_no_sign_while_a_worker_hangs(self, make: Make, manager: Manager, time_: Time) -> None:
        service, agent = make(), Agent()
        service.serve(agent)
        agent.trouble = "look web1/0 for 95 s"
        service.tick()
        assert manager.heard() == []
        assert ask(service.state.paths.state, HERE.netns)["alarms"] == {"stuck": "look web1/0 for 95 s"}
        agent.trouble = ""
        service.tick()
        assert manager.heard() == ["WATCHDOG=1"]
        assert service.state.alarms.active() == {}

    def test_a_loop_that_hangs_shows(self, make: Make, time_: Time) -> None:
        service = make()
        service.serve(Agent())
        service.tick()
        time_.now += 95
        assert ask(service.state.paths.state, HERE.netns)["turned"] == 95

    def test_ready(self, make: Make, manager: Manager) -> None:
        service = make()
        service.serve(Agent())
        assert ask(service.state.paths.state, HERE.netns)["state"] == "starting"
        service.ready("3 NICs")
        assert manager.heard() == ["READY=1", "STATUS=3 NICs"]
        said = ask(service.state.paths.state, HERE.netns)
        assert (said["state"], said["text"], said["agent"]) == ("running", "3 NICs", {"nics": {"up": 3}})

    def test_nothing_is_left_open(self, make: Make, paths: Paths) -> None:
        before = len(os.listdir("/proc/self/fd"))
        write(paths, "[agent]\nmetrics_listen = '127.0.0.1:29642'\n")
        service = make()
        service.serve(Agent())
        service.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert os.listdir(folder(paths.state, HERE.netns)) == [LOCK]


def asked(address: tuple[object, ...] | str, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(address)
        client.sendall(request)
        data = b""
        while part := client.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def trickle(client: socket.socket, data: bytes) -> bool:
    """Sends ``data``; whether the server still takes it."""
    try:
        client.send(data)
    except OSError:
        return False
    return True


class TestExposition:
    def test_a_file(self, make: Make, paths: Paths, root: Path) -> None:
        path = root / "metrics/netcommon.prom"
        path.parent.mkdir()
        write(paths, f"[agent]\nmetrics_file = '{path}'\n")
        service = make()
        service.state.metrics.count("netcommon_drift_total", kind="rule")
        service.serve(Agent())
        wait_until(path.exists)
        text = path.read_text()
        assert 'netcommon_drift_total{kind="rule"} 1\n' in text
        assert "process_" not in text, "node_exporter has its own of that name"
        assert path.stat().st_mode & 0o777 == 0o644
        service.close()
        assert os.listdir(path.parent) == []

    def test_it_is_written_again_and_again(self, make: Make, paths: Paths, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exporter, "INTERVAL", 0.01)
        path = root / "netcommon.prom"
        write(paths, f"[agent]\nmetrics_file = '{path}'\n")
        service = make()
        service.serve(Agent())
        wait_until(path.exists)
        service.state.metrics.count("netcommon_drift_total", kind="rule")
        wait_until(lambda: "netcommon_drift_total" in path.read_text())

    def test_a_folder_that_is_not_there_is_an_alarm_until_it_is(
        self, make: Make, paths: Paths, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exporter, "INTERVAL", 0.01)
        write(paths, f"[agent]\nmetrics_file = '{root}/no/netcommon.prom'\n")
        service = make()
        service.serve(Agent())
        wait_until(lambda: "metrics-file" in service.state.alarms.active())
        (root / "no").mkdir()
        wait_until(lambda: service.state.alarms.active() == {})

    def test_moved_while_it_is_written(self, make: Make, paths: Paths, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The old file does not come back."""
        write(paths, f"[agent]\nmetrics_file = '{root}/a.prom'\n")
        service = make()
        text, held = Metrics.text, threading.Event()
        begun = threading.Event()

        def slow(self: Metrics) -> str:
            begun.set()
            held.wait(5)
            return text(self)

        monkeypatch.setattr(Metrics, "text", slow)
        service.serve(Agent())
        assert begun.wait(5)
        write(paths, f"[agent]\nmetrics_file = '{root}/b.prom'\n")
        service.reload()
        held.set()
        wait_until((root / "b.prom").exists)
        assert not (root / "a.prom").exists()

    def test_reloading_moves_it(self, make: Make, paths: Paths, root: Path) -> None:
        write(paths, f"[agent]\nmetrics_file = '{root}/a.prom'\nmetrics_listen = '{root}/a.sock'\n")
        service = make()
        service.serve(Agent())
        wait_until((root / "a.prom").exists)
        write(paths, f"[agent]\nmetrics_file = '{root}/b.prom'\nmetrics_listen = '{root}/b.sock'\n")
        service.reload()
        wait_until((root / "b.prom").exists)
        assert not (root / "a.prom").exists() and not (root / "a.sock").exists()
        assert asked(f"{root}/b.sock")[0].startswith(b"HTTP/1.0 200 OK\r\n")
        write(paths, "")
        service.reload()
        wait_until(lambda: not (root / "b.prom").exists() and not (root / "b.sock").exists())

    def test_by_http(self, make: Make, paths: Paths, root: Path) -> None:
        write(paths, f"[agent]\nmetrics_listen = '{root}/m.sock'\n")
        service = make()
        service.serve(Agent())
        head, body = asked(f"{root}/m.sock")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head + b"\r\n"
        assert f"Content-Length: {len(body)}".encode() in head
        assert body.startswith(b"# HELP netcommon_agent_start_time_seconds ")
        assert b"\nnetcommon_agent_start_time_seconds 1700000000\n" in body

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (b"GET /metrics?x=y HTTP/1.1\r\n\r\n", b"200 OK"),
            (b"GET /metrics\n\n", b"200 OK"),
            (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
            (b"\xff\xfe\r\n\r\n", b"405 Method Not Allowed"),
            (b"GET /" + b"x" * (metrics_server.LONGEST - 5), b"404 Not Found"),
        ],
    )
    def test_requests(self, request_: bytes, status: bytes) -> None:
        server = Server("127.0.0.1:0", lambda: "text\n")
        head, _body = asked(server.address, request_)
        assert head.startswith(b"HTTP/1.0 " + status)
        server.close()

    def test_head_has_no_body(self) -> None:
        server = Server("[::1]:0", lambda: "text\n")
        head, body = asked(server.address, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert b"Content-Length: 5" in head and body == b""
        server.close()

    def test_a_slow_client_does_not_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metrics_server, "PATIENCE", 0.2)
        server = Server("127.0.0.1:0", lambda: "text\n")
        with socket.create_connection(server.address) as slow:
            slow.sendall(b"GET /met")
            assert asked(server.address)[1] == b"text\n"
        server.close()

    @pytest.mark.parametrize("kind", ["tcp", "unix"])
    @pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["idle", "slow", "deaf"])
    def test_who_takes_his_time_takes_nobody_elses(self, root: Path, kind: str, sent: bytes) -> None:
        """200 local clients that say nothing, or a byte now and then, or do not read the answer: a scrape is answered within a second."""
        threads, before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        text = "text\n" * 200_000
        server = Server(str(root / "m.sock") if kind == "unix" else "127.0.0.1:0", lambda: text)
        assert threading.active_count() == threads + 1
        slow: list[socket.socket] = []
        with contextlib.ExitStack() as held:
            for _ in range(200):
                slow.append(held.enter_context(socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)))
                slow[-1].connect(server.address)
                trickle(slow[-1], sent)
            for _ in range(3):
                if sent.endswith(b"HTTP/1.1\r\n"):
                    for each in slow:
                        trickle(each, b"x")
                start, kept = time.monotonic(), waited(os.getpid())
                assert asked(server.address)[1] == text.encode()
                # what others had the processors for is not the server's
                assert time.monotonic() - start - (waited(os.getpid()) - kept) < slowness()
            assert len(os.listdir("/proc/self/fd")) <= before + 2 + 200 + MOST and threading.active_count() == threads + 1
        server.close()

    def test_who_is_late_is_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each byte does not make the time longer; nor does an answer that nobody reads."""
        monkeypatch.setattr(metrics_server, "PATIENCE", 0.3)
        server = Server("127.0.0.1:0", lambda: "text\n" * 1_000_000)
        with socket.create_connection(server.address) as slow, socket.create_connection(server.address) as deaf:
            deaf.sendall(b"GET /metrics\n\n")
            wait_until(lambda: not trickle(slow, b"x"), 5, "the slow one is let go")
            wait_until(lambda: not server._clients, 5, "and the deaf one")
            assert asked(server.address)[1].startswith(b"text")
        server.close()

    def test_without_descriptors_it_tries_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server = Server("127.0.0.1:0", lambda: "text\n")
        refusing = iter([OSError(errno.EMFILE, "too many")] * 2)
        accept = server._listener.accept

        class Listener:
            """The socket, whose accept fails twice."""

            def __getattr__(self, name: str) -> object:
                return getattr(listener, name)

            def accept(self) -> tuple[socket.socket, object]:
                for error in refusing:
                    raise error
                return accept()

        listener = server._listener
        monkeypatch.setattr(server, "_listener", Listener())
        assert asked(listener.getsockname())[1] == b"text\n" and next(refusing, None) is None
        server.close()

    def test_an_address_that_is_taken_is_an_alarm(self, make: Make, paths: Paths) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(1)
            write(paths, f"[agent]\nmetrics_listen = '127.0.0.1:{other.getsockname()[1]}'\n")
            service = make()
            service.serve(Agent())
            assert "Address already in use" in service.state.alarms.active()["metrics-listen"]
        write(paths, "")
        service.reload()
        assert service.state.alarms.active() == {}


class TestWhatIsThereAlready:
    """Where the settings name a path at which something of somebody else's is, that stays, and there is an alarm."""

    @pytest.fixture
    def listen(self, make: Make, paths: Paths) -> Callable[[str], str]:
        """Has an agent listen at a path, and says the alarm."""

        def listening(path: str) -> str:
            write(paths, f"[agent]\nmetrics_listen = '{path}'\n")
            service = make()
            service.serve(Agent())
            said = service.state.alarms.active().get("metrics-listen", "")
            service.close()
            return said

        return listening

    def test_a_file_where_the_socket_would_be(self, listen: Callable[[str], str], root: Path) -> None:
        (root / "data").write_text("somebody's")
        assert f"cannot listen at {root}/data: something that is no socket is there" in listen(f"{root}/data")
        assert (root / "data").read_text() == "somebody's"

    @pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
    def test_a_socket_of_another_daemon(self, listen: Callable[[str], str], root: Path, kind: int) -> None:
        with socket.socket(socket.AF_UNIX, kind) as other:
            other.bind(f"{root}/live")
            if kind != socket.SOCK_DGRAM:
                other.listen(0)
            before = os.lstat(root / "live")
            assert "another process listens there" in listen(f"{root}/live")
            after = os.lstat(root / "live")  # when it was last connected to, its atime, is another
            assert (*after[:7], after.st_mtime_ns, after.st_ctime_ns) == (*before[:7], before.st_mtime_ns, before.st_ctime_ns)

    def test_a_daemon_whose_queue_is_full(self, listen: Callable[[str], str], root: Path) -> None:
        with contextlib.ExitStack() as held:
            other = held.enter_context(socket.socket(socket.AF_UNIX))
            other.bind(f"{root}/live")
            other.listen(0)
            with pytest.raises(BlockingIOError):
                while True:
                    asking = held.enter_context(socket.socket(socket.AF_UNIX))
                    asking.setblocking(False)
                    asking.connect(f"{root}/live")
            assert "another process listens there" in listen(f"{root}/live")

    def test_a_socket_that_one_who_was_killed_has_left(self, listen: Callable[[str], str], root: Path) -> None:
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(f"{root}/left")
            killed.listen()
        assert listen(f"{root}/left") == ""
        assert not (root / "left").exists()

    @pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
    def test_a_folder_that_others_can_write(self, listen: Callable[[str], str], root: Path, mode: int) -> None:
        (root / "open").mkdir()
        (root / "open").chmod(mode)
        assert "nobody but root may be able to write" in listen(f"{root}/open/m.sock")
        assert os.listdir(root / "open") == []

    def test_a_link_on_the_way_that_others_can_change(self, listen: Callable[[str], str], root: Path) -> None:
        (root / "open").mkdir()
        (root / "open").chmod(0o777)
        (root / "roots/own").mkdir(parents=True)
        (root / "open/link").symlink_to(root / "roots")
        assert "nobody but root may be able to write" in listen(f"{root}/open/link/own/m.sock")
        assert os.listdir(root / "roots/own") == []

    def test_a_link_of_roots_on_the_way(self, make: Make, paths: Paths, root: Path) -> None:
        """As /var/run is one. The file is everybody's to connect to, whatever the umask."""
        (root / "link").symlink_to(root / "run")
        write(paths, f"[agent]\nmetrics_listen = '{root}/link/m.sock'\n")
        before = os.umask(0o077)
        try:
            service = make()
            service.serve(Agent())
        finally:
            os.umask(before)
        assert asked(f"{root}/run/m.sock")[0].startswith(b"HTTP/1.0 200 OK\r\n")
        assert (root / "run/m.sock").stat().st_mode & 0o777 == 0o666
        service.close()
        assert not (root / "run/m.sock").exists()

    @pytest.mark.parametrize("what", ["link", "file"])
    def test_what_takes_the_sockets_place_at_once_keeps_its_mode(self, root: Path, what: str) -> None:
        own = root / "own"
        own.touch(0o600)

        class Raced(socket.socket):
            """A socket whose file is replaced before its mode is set."""

            def bind(self, address: object) -> None:
                super().bind(address)  # type: ignore[arg-type] # a path
                os.unlink(str(address))
                if what == "link":
                    os.symlink(own, str(address))
                else:
                    os.rename(own, str(address))

        with Raced(socket.AF_UNIX) as raced, pytest.raises(HostRefused, match="replaced"):
            SocketFile(raced, f"{root}/m.sock")
        assert (own if what == "link" else root / "m.sock").stat().st_mode & 0o777 == 0o600

    def test_what_came_in_the_sockets_place_stays_in_the_end(self, root: Path) -> None:
        server = Server(f"{root}/m.sock", lambda: "text\n")
        (root / "m.sock").unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{root}/m.sock")
            server.close()
            assert (root / "m.sock").is_socket()

    def test_it_is_tried_again_at_a_reload(self, make: Make, paths: Paths, root: Path) -> None:
        (root / "data").touch()
        write(paths, f"[agent]\nmetrics_listen = '{root}/data'\n")
        service = make()
        service.serve(Agent())
        service.reload()
        assert "metrics-listen" in service.state.alarms.active()
        (root / "data").unlink()
        service.reload()
        assert service.state.alarms.active() == {}
        assert asked(f"{root}/data")[0].startswith(b"HTTP/1.0 200 OK\r\n")

    @pytest.mark.parametrize("what", ["text", "link", "fifo", "socket"])
    def test_something_where_the_metrics_file_would_be(self, make: Make, paths: Paths, root: Path, what: str) -> None:
        path = root / "data"
        with contextlib.ExitStack() as held:
            if what == "text":
                path.write_text("somebody's")
            elif what == "link":
                (root / "own").write_text("somebody's")
                path.symlink_to(root / "own")
            elif what == "fifo":
                os.mkfifo(path)
            else:
                held.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
            before = os.lstat(path)
            write(paths, f"[agent]\nmetrics_file = '{path}'\n")
            service = make()
            service.serve(Agent())
            wait_until(lambda: "metrics-file" in service.state.alarms.active() or os.lstat(path) != before)
            assert service.state.alarms.active()["metrics-file"].startswith(f"'{path}' is no ")
            service.close()
            after = os.lstat(path)
            assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    @pytest.mark.parametrize("text", ["", "# HELP netcommon_nics NICs on record\n"], ids=["empty", "of one that was killed"])
    def test_a_metrics_file_that_may_be_replaced(self, make: Make, paths: Paths, root: Path, text: str) -> None:
        path = root / "netcommon.prom"
        path.write_text(text)
        write(paths, f"[agent]\nmetrics_file = '{path}'\n")
        service = make()
        service.serve(Agent())
        wait_until(lambda: "netcommon_agent_start_time_seconds" in path.read_text())
        assert service.state.alarms.active() == {}
        service.close()
        assert not path.exists()

    def test_what_came_in_the_metrics_files_place_stays_in_the_end(self, make: Make, paths: Paths, root: Path) -> None:
        path = root / "netcommon.prom"
        write(paths, f"[agent]\nmetrics_file = '{path}'\n")
        service = make()
        service.serve(Agent())
        wait_until(path.exists)
        (root / "new").write_text("somebody's")
        (root / "new").rename(path)
        service.close()
        assert path.read_text() == "somebody's"


class TestStartDelay:
    def test_by_itself(self, paths: Paths) -> None:
        unit = {"INVOCATION_ID": "a"}
        assert start_delay(Settings(), unit, paths, lambda: 0.5) == 0
        os.makedirs(paths.ganeti_run)
        assert start_delay(Settings(), {}, paths, lambda: 0.5) == 0
        assert [start_delay(Settings(), unit, paths, partial(float, chance)) for chance in (0, 1)] == [SHORTEST, LONGEST]

    def test_as_the_settings_say(self, paths: Paths) -> None:
        assert start_delay(Settings(agent_start_delay=7.5), {"INVOCATION_ID": "a"}, paths) == 7.5
