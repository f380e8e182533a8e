"""The story that ``examples/cluster registry`` tells: a registry that outgrows its file, on an etcd of three members and two services."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from examples.clusterlib.etcd import Etcd
from examples.clusterlib.machine import Machine
from examples.clusterlib.story import Registry, promised, tell, within
from examples.demolib.place import private_mounts
from examples.demolib.show import Failed, command, heading, line, output, trouble
from tests.support.browser import browser, forwarded
from tests.support.netns import PRIVATE, Namespace, run
from tests.support.node import fresh

#: Seconds: until what is changed is seen by the guest; until another member or service does what one did that was killed.
SEEN, ELECTED = 15.0, 40.0
PORT = 8931
GATEWAY = "192.0.2.1"  #: of the network blue; it is node3's
PICTURE_HEIGHT = 560
#: What is asked before and after: each is answered the same.
QUESTIONS = (("find", "2.11"), ("nic", "list"), ("network", "list"), ("conflicts",), ("history",))


class Service(Registry):
    """A registry's service on a machine, with its settings."""

    def __init__(self, checkout: Path, machine: Machine) -> None:
        super().__init__(checkout, Path("/"), machine.name, machine.inside, machine.root)
        self.machine, self.url = machine, f"https://{machine.address}:{PORT}"
        self.pages = self.socket.with_name("pages")
        self.authority = Path(f"{machine.root}/var/lib/netregistry/authority")

    def settings(self, store: str = "") -> None:
        """Write the settings: where it listens, and which etcd keeps the registry, if one does."""
        lines = [f'listen = ["{self.machine.address}:{PORT}"]', f'names = ["{self.machine.address}"]']
        lines += [f'store = "{store}"'] if store else []
        Path(f"{self.machine.root}/etc/netcommon/config.toml").write_text("\n".join(["[registry]", *lines, ""]))

    def answers(self) -> list[str]:
        """Give what it answers to all of QUESTIONS."""
        return [run(*self.argv(*words)) for words in QUESTIONS]

    def nic(self, label: str) -> dict[str, Any]:
        """Give one NIC, with what is shown of it."""
        return next(item for item in self.look("nic", "list") if item["label"] == label)

    def epoch(self) -> str:
        """Give the epoch of the registry, as all revisions say it."""
        return str(self.nic("web1/0")["revision"]).partition(":")[0]


class Client:
    """A guest, as a namespace behind node3's tap0: it has web1's MAC and address, and tells whether it reaches its gateway."""

    def __init__(self, checkout: Path, node: Machine, nic: dict[str, Any]) -> None:
        self._guest = Namespace()
        there = ("name", "eth0", "address", nic["mac"], "netns", self._guest.path)
        run("ip", "link", "add", "tap0", "netns", str(node.pid), "type", "veth", "peer", *there)
        self._guest.run("ip", "address", "add", f"{nic['ip']}/24", "dev", "eth0")
        self._guest.run("ip", "link", "set", "eth0", "up")
        node.run("ip", "address", "add", f"{GATEWAY}/24", "dev", "br0")
        given = {"INTERFACE": "tap0", "INTERFACE_INDEX": "0", "INTERFACE_UUID": nic["uuid"], "INSTANCE": nic["instance"], "MAC": nic["mac"]}
        given |= {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0", "IP": nic["ip"], "TAGS": "", "VLAN": ""}
        command(f"{node.name}: hooks/kvm-ifup tap0    # as a hypervisor does it for {nic['instance']}")
        output(node.run("env", *(f"{name}={value}" for name, value in given.items()), str(checkout / "hooks/kvm-ifup"), "tap0"))

    def reaches(self) -> bool:
        """Tell whether the gateway answers a ping."""
        with self._guest.entered():
            return subprocess.run(["ping", "-q", "-c", "1", "-W", "1", GATEWAY], capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        self._guest.close()


def play(checkout: Path, etcd: Path, picture: Path) -> int:
    """Tell the whole story in the namespaces that the caller has made; give the exit status. ``etcd``: the program."""
    private_mounts()
    os.environ[PRIVATE] = "1"
    heading("Three machines, in namespaces of their own; on the first one a registry, as examples/cluster shows it")
    with fresh() as here:
        here.bridge("lan0")
        here.address("lan0", "10.99.1.9/24")
        machines: list[Machine] = []
        story: Story | None = None
        try:
            for number in (1, 2, 3):
                machines.append(Machine(checkout, number))
            story = Story(checkout, etcd, machines)
            story.tell(picture)
        except (Failed, AssertionError, OSError, subprocess.SubprocessError) as failure:
            output(str(failure))
            if story is not None:
                story.troubles()
            return 1
        finally:
            if story is not None:
                story.end()
            for machine in machines:
                machine.end()
    line(f"the page's picture: {picture}")
    return 0


class Story:
    """Three machines: services on the first two, a node with a guest on the third, and a member of an etcd on each."""

    def __init__(self, checkout: Path, etcd: Path, machines: list[Machine]) -> None:
        self._checkout, self._machines = checkout, machines
        folder = Path("/run/demo")
        folder.mkdir()
        # the path of a socket in it must not be long (unix(7)): the browser has one
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        self._etcd = Etcd(etcd, folder, machines)
        self._first, self._second = (Service(checkout, machine) for machine in machines[:2])
        self._node = machines[2]
        self._guest: Client | None = None

    def tell(self, picture: Path) -> None:
        """Tell all of it. Raises Failed, and what programs raise."""
        self._first.settings()
        tell(self._first)
        self._joined()
        self._moved()
        self._leader_killed()
        self._service_killed()
        self._picture(picture)

    def _reaches(self, wanted: bool, text: str) -> None:
        guest = self._guest
        within(SEEN, lambda: guest is not None and guest.reaches() is wanted, text)

    def _joined(self) -> None:
        heading("node3 joins by TLS, with the addresses of two services, and has the guest web1")
        command("node1: netcommon registry token create node")
        token = json.loads(run(*self._first.argv("token", "create", "node", "--json")))["value"]["token"]
        command(f"node3: netcommon registry join {self._first.url},{self._second.url} -")
        argv = [*self._node.inside, str(self._checkout / ".venv/bin/netcommon"), "registry", "join"]
        output(run(*argv, f"{self._first.url},{self._second.url}", "-", stdin=f"{token}\n"))
        self._node.start_agent()
        self._guest = Client(self._checkout, self._node, self._first.nic("web1/0")["nic"])
        within(SEEN, lambda: self._first.nic("web1/0")["shown"]["state"] == "running", "the registry shows web1 as running")
        self._reaches(True, f"web1 reaches {GATEWAY}, which is node3")

    def _moved(self) -> None:
        heading("The registry moves from its file to three etcd members, which speak TLS with each other and with the services")
        for machine in self._machines:
            self._etcd.start(machine)
        within(ELECTED, lambda: self._etcd.led() == 3, "all three members know a leader")
        before, epoch = self._first.answers(), self._first.epoch()
        self._first.stop()
        self._first.type("move", "--to", self._etcd.url)
        command("node1: scp -r /var/lib/netregistry/authority node2:/var/lib/netregistry/    # its keys: for root alone")
        self._second.authority.parent.mkdir(mode=0o700)
        shutil.copytree(self._first.authority, self._second.authority)
        for service in (self._first, self._second):
            service.settings(self._etcd.url)
            service.start()
        line("The same questions: " + "; ".join(" ".join(words) for words in QUESTIONS))
        # a moment passes until the node has told the services again that it is there
        for service in (self._first, self._second):
            self._same(service, before, "as the file's did")
        promised(self._first.epoch() == self._second.epoch() != epoch, "it is another epoch")
        self._changed(self._second, "none", False)
        self._changed(self._first, "", True)

    def _same(self, service: Service, wanted: list[str], text: str) -> None:
        """See that a service gives these answers, at once or soon."""
        given = list[str]()

        def same() -> bool:
            given[:] = service.answers()
            return given == wanted

        try:
            within(ELECTED, same, f"{service.machine.name}'s service answers all of them {text}")
        except Failed:
            output("\n".join(difflib.unified_diff("".join(wanted).splitlines(), "".join(given).splitlines(), "before", "now", lineterm="")))
            raise

    def _changed(self, service: Service, value: str, reaches: bool) -> None:
        """Change whether the guest may reach its node, at a service, and see that it comes to the guest."""
        service.type("nic", *(("set", "web1/0", f"options.node_access={value}") if value else ("unset", "web1/0", "options.node_access")))
        self._reaches(reaches, f"web1, which runs, {'reaches' if reaches else 'does not reach'} node3{'' if reaches else ' any more'}")

    def _leader_killed(self) -> None:
        heading("The etcd's leader is killed")
        before, led = self._second.answers(), self._etcd.leader()
        if led is None:
            raise Failed("no member of the etcd leads")
        command(f"{led.name}: kill -9 etcd    # it leads")
        self._etcd.kill(led)
        within(ELECTED, lambda: self._etcd.leader() not in (None, led) and self._etcd.led() == 2, "another member leads")
        for service in (self._first, self._second):
            self._same(service, before, "the same")
        self._changed(self._second, "none", False)
        self._etcd.start(led)
        within(ELECTED, lambda: self._etcd.led() == 3, "the member is back, and has caught up")

    def _service_killed(self) -> None:
        heading("The service on node1 is killed")
        self._first.end(signal.SIGKILL)
        line("node3's agent goes on at node2, with the certificate that it has.")
        self._changed(self._second, "", True)
        self._second.type("history", "web1/0")
        self._first.start()
        self._same(self._first, self._second.answers(), "as node2's does, after its start")

    def _picture(self, picture: Path) -> None:
        heading("A page of node2's service, in a browser")
        with browser() as chromium, forwarded(str(self._second.pages)) as port:
            page = chromium.page()
            page.go(f"http://localhost:{port.port}/nics")
            page.until("document.getElementById('live').textContent === 'Live'")
            promised(all(f"web{number}/0" in page.text for number in (1, 2, 3)), "all NICs are on it, and it is live")
            picture.parent.mkdir(parents=True, exist_ok=True)
            page.picture(picture, PICTURE_HEIGHT)
            page.go("about:blank")

    def troubles(self) -> None:
        """Show what the members of the etcd have said last."""
        for machine in self._machines:
            if self._etcd.log(machine).exists():
                trouble(f"{machine.name}: etcd", "\n".join(self._etcd.log(machine).read_text(errors="replace").splitlines()[-20:]))

    def end(self) -> None:
        """End all that was started, but for the machines."""
        if self._guest is not None:
            self._guest.close()
        for service in (self._first, self._second):
            service.end(signal.SIGKILL)
        self._etcd.end()
