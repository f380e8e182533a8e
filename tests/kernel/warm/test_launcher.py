"""hooks/launcher against agents that die or lie at each step: the work is done once, by the one or the other."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netagent.hooks.protocol import LARGEST
from tests.support.bootstrap import ROOT
from tests.support.netns import slowness
from tests.support.node import Node
from tests.support.rundoor import BASE, Outcome, execute

COLD = '#!/bin/sh\necho "$0" "$@" >>/run/cold\ncat /proc/$$/environ >/run/cold.env\necho cold >&2\nexit 5\n'


@pytest.fixture
def hooks(node: Node, tmp_path: Path) -> Path:
    """The launcher, with doors that only say that they were called."""
    made = tmp_path / "hooks"
    (made / "cold").mkdir(parents=True)
    shutil.copy(ROOT / "hooks/launcher", made / "launcher")
    for name in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup"):
        (made / name).symlink_to("launcher")
    for name in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "up", "down"):
        (made / "cold" / name).write_text(COLD)
        (made / "cold" / name).chmod(0o755)
    os.makedirs("/run/netcommon/agent")
    return made


def place() -> str:
    return f"/run/netcommon/agent/hooks-{os.stat('/proc/thread-self/ns/net').st_ino}"


class Heard:
    """A connection that keeps what it receives."""

    def __init__(self, hook: socket.socket, heard: list[bytes]) -> None:
        self._hook, self._heard = hook, heard

    def recv(self) -> bytes:
        self._heard.append(self._hook.recv(1 << 17))
        return self._heard[-1]

    def send(self, data: bytes) -> int:
        return self._hook.send(data)


Behaviour = Callable[[Heard], object]


class FakeAgent:
    """Behaves as it is told to, once; what it was sent is in ``heard``."""

    def __init__(self, behaviour: Behaviour, backlog: int = 5) -> None:
        self.heard: list[bytes] = []
        self._behaviour = behaviour
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(place())
        self._listener.listen(backlog)
        self._listener.settimeout(20)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), self._listener.accept()[0] as hook:
            hook.settimeout(20)
            self._behaviour(Heard(hook, self.heard))

    def close(self) -> None:
        self._thread.join(30)
        self._listener.close()
        os.unlink(place())


@contextlib.contextmanager
def fake(behaviour: Behaviour) -> Iterator[FakeAgent]:
    made = FakeAgent(behaviour)
    try:
        yield made
    finally:
        made.close()


def call(hooks: Path, name: str = "kvm-ifup", *arguments: str, **environment: str) -> Outcome:
    return execute([str(hooks / name), *(arguments or ("b'tap0'",))], {**BASE, "INTERFACE": "tap0", **environment}, 60 * slowness())


def cold_calls() -> list[str]:
    found = Path("/run/cold").read_text().splitlines() if os.path.exists("/run/cold") else []
    Path("/run/cold").unlink(missing_ok=True)
    return found


def ready(hook: Heard, seconds: int = 20) -> None:
    hook.recv()
    hook.send(b"ready %d" % seconds)


def begun(hook: Heard) -> bool:
    ready(hook)
    return hook.recv() == b"go"


def verdict(status: int, text: bytes) -> Behaviour:
    def behave(hook: Heard) -> None:
        assert begun(hook)
        hook.send(b"%d\n" % status + text)

    return behave


#: What an agent may do instead of the work, and whether it has been told to begin.
FAILING: dict[str, tuple[Callable[[Heard], object], bool]] = {
    "hangs up at once": (lambda hook: None, False),
    "hangs up after the call": (lambda hook: hook.recv(), False),
    "refuses": (lambda hook: (hook.recv(), hook.send(b"no")), False),
    "says nonsense": (lambda hook: (hook.recv(), hook.send(b"ready or not")), False),
    "says nothing": (lambda hook: (hook.recv(), hook.recv()), False),
    "dies when it has said that it begins": (ready, False),
    "dies at work": (begun, True),
    "gives a verdict that is none": (lambda hook: (begun(hook), hook.send(b"done")), True),
}


@pytest.mark.parametrize("what", FAILING)
def test_what_the_agent_does_not_do_the_hook_does(hooks: Path, what: str) -> None:
    behaviour, told = FAILING[what]
    with fake(behaviour) as agent:
        done = call(hooks)
    assert (done.status, done.stderr) == (5, "cold\n")
    assert cold_calls() == [f"{hooks}/cold/kvm-ifup b'tap0'"]
    assert b"go" in agent.heard or not told
    if what == "says nothing":
        assert agent.heard[1:] == [b""], "the hook has hung up before it began"


@pytest.mark.parametrize(("status", "text"), [(0, b""), (0, b"netcommon: warning: a\n"), (69, b"a\n\xff\n"), (75, b"x" * 60000)])
def test_what_the_agent_does_the_hook_does_not(hooks: Path, status: int, text: bytes) -> None:
    with fake(verdict(status, text)) as agent:
        done = call(hooks)
    assert (done.status, os.fsencode(done.stderr), done.stdout) == (status, text, "")
    assert cold_calls() == [] and agent.heard[1:] == [b"go"]


def test_an_agent_that_is_at_work_for_too_long_is_left_to_it(hooks: Path) -> None:
    def works(hook: Heard) -> None:
        ready(hook, 1)
        hook.recv()
        hook.recv()

    with fake(works) as agent:
        done = call(hooks)
    assert done.status == 75 and done.stderr.startswith("netcommon: error: ") and done.stderr.count("\n") == 1
    assert cold_calls() == [] and agent.heard[1:] == [b"go", b""]


def test_no_agent(hooks: Path) -> None:
    assert call(hooks).status == 5 and cold_calls() == [f"{hooks}/cold/kvm-ifup b'tap0'"]


def test_a_socket_that_nobody_listens_at(hooks: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(place())
    assert call(hooks).status == 5 and len(cold_calls()) == 1


def test_a_queue_that_is_full_is_not_waited_for(hooks: Path) -> None:
    """An agent that is stopped, and more hooks than wait there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place())
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) for _ in range(4)]
        with contextlib.suppress(BlockingIOError):
            for one in waiting:
                one.connect(place())
        done = call(hooks)
        for one in waiting:
            one.close()
    assert done.status == 5 and done.seconds < 0.5 * slowness() and len(cold_calls()) == 1


@pytest.mark.parametrize("length", [100, 100000])
def test_what_is_too_large_is_done_by_the_hook(hooks: Path, length: int) -> None:
    """The agent, which would only have to refuse it, is not asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as listener:
        listener.bind(place())
        listener.listen(1)
        done = call(hooks, TAGS="x" * length, NETWORK_TAGS="y" * length)
        asked = True
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            asked = False
    assert done.status == 5 and len(cold_calls()) == 1
    assert asked == (length < LARGEST / 2)


def test_the_call_is_handed_over_as_it_came(hooks: Path) -> None:
    """Bytes that are no UTF-8, and whatever the caller has set for Perl, which must neither run nor change anything."""
    tricks = {"PERL5OPT": "-MNoSuchModule", "PERL5LIB": "/nowhere", "PERL_UNICODE": "SDA", "PERLIO": ":utf8", "IFS": "x", "BASH_ENV": "/x"}
    given = {"Z": "1", "A": "caf\xe9 \udcff\n", "EMPTY": "", **tricks}
    with fake(verdict(0, b"")) as agent:
        assert call(hooks, "kvm-ifdown", "tap\xe9", "\udcff", **given)[:3] == (0, "", "")
    words = agent.heard[0].split(b"\0")
    assert words[:2] == [b"netcommon-1", b"kvm-ifdown"] and int(words[3]) == os.getpid() and int(words[2]) > 0
    assert words[4:7] == [b"2", os.fsencode("tap\xe9"), b"\xff"]
    expected = {**BASE, "INTERFACE": "tap0", **given}
    assert words[7:] == [os.fsencode(f"{name}={value}") for name, value in expected.items()] + [b""]
    assert call(hooks, "kvm-ifdown", "tap\xe9", "\udcff", **given).status == 5
    assert Path("/run/cold").read_bytes() == os.fsencode(f"{hooks}/cold/kvm-ifdown tap\xe9 \udcff\n")
    assert Path("/run/cold.env").read_bytes() == b"\0".join(words[7:])


@pytest.mark.parametrize(
    ("links", "name"),
    [
        ({"kvm-vif-bridge": "{hooks}/kvm-ifup"}, "kvm-ifup"),
        ({"one": "two", "two": "{hooks}/kvm-ifdown"}, "kvm-ifdown"),
        ({"up": "{hooks}/kvm-nic-setup"}, "up"),
        ({"down": "other/link", "other/link": "../../hooks/kvm-nic-setup"}, "down"),
        ({"up": "{hooks}/kvm-ifup"}, "kvm-ifup"),
    ],
)
def test_by_whichever_links_it_is_reached(hooks: Path, links: dict[str, str], name: str) -> None:
    site = hooks.parent / "site"
    for link, target in links.items():
        (site / link).parent.mkdir(parents=True, exist_ok=True)
        (site / link).symlink_to(target.format(hooks=hooks))
    first = next(iter(links))
    with fake(verdict(0, b"")) as agent:
        assert execute([str(site / first), "tap0"], BASE).status == 0
    assert agent.heard[0].split(b"\0")[1] == name.encode()
    assert execute([str(site / first), "tap0"], BASE).status == 5
    assert os.path.realpath(cold_calls()[0].split()[0]) == str(hooks / "cold" / name)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_descriptors(hooks: Path, closed: tuple[int, ...]) -> None:
    closing = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    with fake(verdict(69, b"said\n")):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", str(hooks / "kvm-ifup"), "tap0"], env=BASE, capture_output=True, check=False
        )
    assert (done.returncode, done.stderr) == (69, b"" if 2 in closed else b"said\n")
    assert cold_calls() == []


def test_nobody_who_does_not_read_is_waited_for(hooks: Path) -> None:
    reading, writing = os.pipe()
    with fake(verdict(69, b"x" * 60000)):
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writing, b"x" * 4096):
                pass
        os.set_blocking(writing, True)
        done = subprocess.run([str(hooks / "kvm-ifup"), "tap0"], env=BASE, stderr=writing, check=False, timeout=30 * slowness())
    os.close(reading)
    assert done.returncode == 69
    with fake(verdict(69, b"said\n")):  # and now nobody can ever read it
        assert subprocess.run([str(hooks / "kvm-ifup"), "tap0"], env=BASE, stderr=writing, check=False).returncode == 69
    os.close(writing)
