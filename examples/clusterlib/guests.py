"""The story that ``examples/cluster guests`` tells: real guests on two nodes, and what is changed in one place seen by them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from examples.clusterlib.machine import Machine
from examples.clusterlib.story import SECONDS, Registry, promised, within
from examples.demolib.guest import Guest
from examples.demolib.image import Image
from examples.demolib.place import private_mounts
from examples.demolib.plans import Plan
from examples.demolib.show import Failed, command, heading, output, trouble
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.node import fresh

#: Seconds: until a guest has booted, by emulation on a busy machine; until what is changed is seen by it; until what is gone is gone.
BOOT, SEEN, GONE = 120.0, 10.0, 40.0
WORLD = "10.99.1.9"


class Member(Machine):
    """One node of the cluster, and the guest on it."""

    def __init__(self, checkout: Path, image: Image, number: int, instance: str) -> None:
        super().__init__(checkout, number)
        self.uuid = NICS[number]
        plan = Plan(
            instance, number, "bridged", f"10.99.1.{number + 10}/24", WORLD, (self.address, WORLD), f"on {self.name}", watch=self.address
        )
        self.guest = Guest(plan, image, checkout / "hooks", self.inside, self.root, self._variables(plan))

    def _variables(self, plan: Plan) -> dict[str, str]:
        """Give what Ganeti says to the hooks."""
        nic = {"INTERFACE": plan.tap, "INTERFACE_INDEX": "0", "INTERFACE_UUID": self.uuid, "INSTANCE": plan.name, "MAC": plan.mac}
        nic |= {"MODE": plan.mode, "LINK": "br0", "BRIDGE": "br0", "IP": plan.inner, "TAGS": "", "VLAN": ""}
        network = {"NETWORK_NAME": "blue", "NETWORK_UUID": NETWORKS[0], "NETWORK_SUBNET": "10.99.1.0/24", "NETWORK_GATEWAY": WORLD}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **nic, **network}

    def join(self) -> None:
        """Let the node join the registry, and its agent run."""
        self.type("registry", "node", "join", self.name)
        self.start_agent()

    def end(self) -> None:
        """End the guest and the node."""
        self.guest.kill()
        super().end()


class Site:
    """Run what all nodes have in common: the registry, and the master of the Ganeti cluster with its importer."""

    def __init__(self, checkout: Path) -> None:
        self.registry, self.cluster = Registry(checkout, Path("/")), Cluster()
        self._ganeti = GanetiNode(Path("/"))
        self._ganeti.start()
        self._argv = [str(checkout / ".venv/bin/netcommon"), "registry", "import", "--ganeti", "--watch"]
        self._importer: subprocess.Popen[bytes] | None = None

    def fill(self) -> None:
        """Make the registry, and let it know what the Ganeti cluster has."""
        self.registry.type("init")
        self.registry.start()
        self.cluster.network(NETWORKS[0], "blue", "10.99.1.0/24", gateway=WORLD)
        for number, instance in ((1, "web"), (2, "mail")):
            self.cluster.nic(NICS[number], f"52:54:00:99:00:{number:02x}", instance, network=NETWORKS[0], ip=f"10.99.1.{number + 10}")
        self.written()
        command("systemctl start netcommon-importer")
        self._importer = subprocess.Popen(self._argv, stderr=subprocess.DEVNULL)
        within(SECONDS, lambda: len(self.registry.look("nic", "list")) == 2, "the registry knows the NICs of the Ganeti cluster")

    def written(self) -> None:
        """Write the configuration as Ganeti does."""
        self.cluster.changed()
        self._ganeti.write(self.cluster)

    def tag(self, instance: str, *tags: str) -> None:
        """Let an instance have these tags."""
        verb = "add-tags" if tags else "remove-tags"
        command(f"gnt-instance {verb} {instance} netcommon:0:node_access:none")
        self.cluster.instance(instance)["tags"] = list(tags)
        self.written()

    def states(self) -> dict[str, str]:
        """Give the state of each NIC that is wanted, by its label."""
        return {item["label"]: item["shown"]["state"] for item in self.registry.look("nic", "list")}

    def end(self) -> None:
        if self._importer is not None:
            self._importer.terminate()
            self._importer.wait(SECONDS)
        self.registry.end(signal.SIGTERM)
        self._ganeti.stop()


def play(checkout: Path, image: Image) -> int:
    """Tell the whole story in the namespaces that the caller has made; give the exit status."""
    private_mounts()
    heading("A registry, a Ganeti cluster's master with its importer, and two nodes, in namespaces of their own")
    members: list[Member] = []
    with fresh() as here:
        here.bridge("lan0")
        here.address("lan0", f"{WORLD}/24")
        site = Site(checkout)
        try:
            site.fill()
            for number, instance in ((1, "web"), (2, "mail")):
                members.append(Member(checkout, image, number, instance))
                members[-1].join()
                site.registry.type("node", "set", members[-1].name, f"cluster={CLUSTER}")
            _told(site, *members)
        except (Failed, AssertionError, OSError, subprocess.SubprocessError) as failure:
            output(str(failure))
            for member in members:
                trouble(f"{member.guest.plan.name}: QEMU and the hooks", member.guest.read("log"))
                trouble(f"{member.guest.plan.name}: console", "\n".join(member.guest.read("console").splitlines()[-20:]))
            return 1
        finally:
            for member in members:
                member.end()
            site.end()
    return 0


def _told(site: Site, first: Member, second: Member) -> None:
    web, mail = first.guest, second.guest
    _booted(site, first, second)
    heading("In the registry the operator shuts web off from its node")
    site.registry.type("nic", "set", "web/0", "options.node_access=none")
    within(SEEN, lambda: web.reaches is False, f"web, which runs, does not reach {first.address} any more")
    promised(mail.reaches is True, "mail reaches its own")
    first.type("list", "--cluster")
    site.registry.type("nic", "unset", "web/0", "options.node_access")
    within(SEEN, lambda: web.reaches is True, "and reaches it again")
    heading("In Ganeti mail gets a tag")
    site.tag("mail", "netcommon:0:node_access:none")
    within(SEEN, lambda: mail.reaches is False, f"mail, which runs, does not reach {second.address} any more")
    site.tag("mail")
    within(SEEN, lambda: mail.reaches is True, "and reaches it again")
    heading("The registry is killed, and web with it; web starts without it")
    site.registry.type("nic", "set", "web/0", "options.node_access=none")
    within(SEEN, lambda: web.reaches is False, f"web does not reach {first.address} any more")
    site.registry.end(signal.SIGKILL)
    web.kill()
    web.start()
    within(BOOT, lambda: web.said("ready") or web.ended(), f"web is up {web.plan.says}, as the registry wanted it last")
    promised(not web.ended() and web.unanswered() == [first.address], f"it reaches the world, and never {first.address}")
    site.registry.start()
    site.registry.type("nic", "unset", "web/0", "options.node_access")
    within(GONE, lambda: web.reaches is True, "its node has found the registry again, and web reaches its node")
    heading("mail is destroyed behind everybody's back, and then removed")
    mail.kill()
    within(GONE, lambda: site.states()["mail/0"] == "stopped", "the registry shows it as stopped")
    command("gnt-instance remove mail")
    site.cluster.remove(second.uuid)
    site.written()
    within(GONE, lambda: "mail/0" not in site.states(), "it is wanted no more")
    site.registry.type("network", "release", "blue", mail.plan.inner)  # it is in quarantine for an hour
    site.registry.type("nic", "add", "network=blue", "instance=db", "index=0", f"ip={mail.plan.inner}")
    site.registry.type("nic", "list")
    promised(site.states() == {"db/0": "provisioning", "web/0": "running"}, "out of quarantine its address is another one's; web runs")


def _booted(site: Site, *members: Member) -> None:
    heading("Two guests boot, by plain emulation; their hypervisor calls the hooks as Ganeti's does")
    for member in members:
        member.guest.start()
    for member in members:
        guest = member.guest
        within(BOOT, lambda guest=guest: guest.said("ready") or guest.ended(), f"{guest.plan.name} is up {guest.plan.says}")  # type: ignore[misc]
        promised(not guest.ended() and not guest.unanswered(), "it reaches its node, and the world")
    within(SEEN, lambda: set(site.states().values()) == {"running"}, "the registry shows both as running")
    site.registry.type("nic", "list")
    within(BOOT, lambda: all(member.guest.reaches for member in members), "each reaches its node again and again")
