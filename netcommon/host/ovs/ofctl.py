"""OpenFlow of Open vSwitch, by ovs-ofctl(8): its notation of flows is a language of its own, which nobody should parse twice.

Flows are put by OpenFlow 1.4 alone, which has bundles: all flows of a NIC change at one moment, or none does. What the shipped spoof
guard is made of, and deletions, go to the switch without ovs-ofctl (netcommon.host.ovs.openflow_bundle); where that is refused,
ovs-ofctl says why. A bridge that speaks no 1.4 any more (`protocols`) keeps its flows: they are read and deleted by what it speaks.
"""

from __future__ import annotations

import errno
import os
import time

from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK, Flow
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import DeleteFlows
from netcommon.host.ovs import openflow_bundle
from netcommon.host.ovs.openflow_codec import StrangeError
from runtime.errors import HostRefused, SettingsInvalid, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netcommon.host.api.requests import PutFlows
    from netcommon.host.ovs.jsonrpc import Deadline

    Ports = Callable[[str, Sequence[str]], Mapping[str, int]]
    Restored = Callable[[float], bool]

PROGRAM = "ovs-ofctl"
PLACES = ("/usr/bin", "/usr/sbin", "/usr/local/bin")
VERSION = "OpenFlow14"
OTHERS = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow15"  #: what reads and deletes flows as well

#: What it logs where it and the bridge share no version, and the option by which it logs nothing else. It says afterwards that the
#: connection failed, in the words of whatever error it meets when it takes its leave of a switch that has closed it, or has not yet.
UNSPOKEN = "version negotiation failed"
QUIETLY = ("-voff", "-vvconn:console:warn")
EXACTLY = (1 << 64) - 1
OURS = f"cookie={FLOW_MARK:#x}/{FLOW_MARK_MASK:#x}"  #: the flows with our mark

#: What is read of one answer at most: 100000 flows (bytes).
LIMIT = 64 << 20

#: What ovs-ofctl prints before a flow's match, besides the cookie, that is no part of what was asked for.
COUNTING = frozenset({"duration", "n_packets", "n_bytes", "idle_age", "hard_age"})

#: What OpenFlow 1.4 tells of how a flow was added, by whoever used 1.0 or 1.1 for it: it is no part of what the flow is.
ADDED = frozenset({"reset_counts"})
OFPP_LOCAL = 65534  #: the bridge's own port (OpenFlow 1.0)
#: What it prints of a flow that shall go by itself, or be told of when it goes, besides "cookie:0x7", "idle:5".
FLAGS = frozenset({"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"})

#: What it says where there is no such bridge, or no ovs-vswitchd.
REFUSED = "Connection refused"
NOT_THERE = ("No such file or directory", REFUSED)

#: Seconds: how long a switch is waited for that has the port and does not listen yet, and between looks. ovs-vswitchd takes ports in,
#: binds a bridge's socket and listens at it within some milliseconds; the socket of one that was killed refuses in the same way.
LISTENS_WITHIN, PAUSE = 1.0, 0.01


class OpenFlow:
    """The flows of this machine's bridges. ``folder``: where ovs-vswitchd has its sockets. Each method has a deadline.

    ``ports``: the OpenFlow numbers of those of these ports that the bridge has. ``restored``: see OvsReader.
    """

    def __init__(
        self, folder: str, deadline: Deadline, clock: Callable[[], float], ports: Ports, restored: Restored, proc: str = "/proc"
    ) -> None:
        self._folder, self._deadline, self._clock, self._ports, self._proc = folder, deadline, clock, ports, proc
        self._restored = restored

    def flows(self, bridge: str, cookie: int = 0) -> list[Flow]:
        """See View. Raises TryAgain."""
        return self._dumped(bridge, f"cookie={cookie:#x}/{EXACTLY:#x}" if cookie else OURS)

    def flows_from(self, bridge: str, port: int) -> list[Flow]:
        """See View. Raises TryAgain."""
        return self._dumped(bridge, f"in_port={port}")

    def flows_of_table(self, bridge: str, table: int, most: int, left: Callable[[str], bool]) -> list[Flow] | None:
        """Return the flows of one table, but those whose printed line is ``left`` out; None where others' are more than ``most``.

        Ours are not counted: each guarded NIC has fifty, whose lines are many to take apart. Raises TryAgain.
        """
        every, ours = (self._count(bridge, wanted) for wanted in (f"table={table}", f"table={table},{OURS}"))
        return None if every - ours > most else self._dumped(bridge, f"table={table}", left)

    def _count(self, bridge: str, wanted: str) -> int:
        """Count flows; 0 where the switch does not say it. Raises TryAgain."""
        counted = self._asked(bridge, "dump-aggregate", wanted)[1].partition("flow_count=")[2].split()
        return int(counted[0]) if counted and counted[0].isdecimal() else 0

    def shown(self, bridge: str) -> list[str]:
        """Return the lines in which ovs-ofctl shows the ports of a bridge. Raises TryAgain."""
        return self._asked(bridge, "show")[1].splitlines()

    def _asked(self, bridge: str, command: str, *arguments: str) -> tuple[Answer, str]:
        said, text = self._spoken("--no-names", command, self._target(bridge), *arguments)
        if not said.ok:
            raise TryAgain(f"{command} of {bridge}: {said.text}")
        return said, text

    def _dumped(self, bridge: str, wanted: str, left: Callable[[str], bool] = lambda line: False) -> list[Flow]:
        if not os.path.exists(self._socket(bridge)):
            return []  # saves a process: most nodes have no Open vSwitch, and gc asks all bridges there are
        said, text = self._spoken("--no-names", "dump-flows", self._target(bridge), wanted)
        if said.errno == errno.ENOENT:
            return []
        if not said.ok:
            raise TryAgain(f"the flows of {bridge}: {said.text}")
        return [flow for line in text.splitlines() if not left(line) and (flow := read_flow(bridge, line)) is not None]

    def texts(self, flows: Sequence[str]) -> list[str]:
        """See View.flow_texts. Asks no switch."""
        if not flows:
            return []
        lines = "".join(f"{flow}\n" for flow in flows)
        said, text = self._run("parse-flows", "-", given=lines)
        parsed = [line.partition(": ADD")[2] for line in text.splitlines() if ": ADD" in line]
        if not said.ok:
            raise SettingsInvalid(f"these are no flows: {said.text}")
        if "normalization" in text or len(parsed) != len(flows):
            raise SettingsInvalid("a flow names a field without the protocol that it belongs to, such as nw_src without ip")
        return [normal(each, flow) for each, flow in zip(parsed, flows, strict=True)]

    def execute(self, request: PutFlows | DeleteFlows) -> Answer:
        """Carries it out."""
        return self._waiting() or self._once_listening(request, self._end())

    def _end(self) -> float:
        """When a switch that does not listen yet is waited for no longer."""
        return self._clock() + min(self._deadline.seconds, LISTENS_WITHIN)

    def _once_listening(self, request: PutFlows | DeleteFlows, end: float) -> Answer:
        """Carries it out; once more when the switch listens, where it has the port and does not listen yet (see LISTENS_WITHIN)."""
        answer = self._execute(request)
        while answer.errno == errno.EAGAIN and self._clock() < end:
            time.sleep(PAUSE)
            if openflow_bundle.listens(self._socket(request.bridge)):
                answer = self._execute(request)
        return answer

    def _execute(self, request: PutFlows | DeleteFlows) -> Answer:
        direct = self._direct(request.bridge, [request])
        if direct is not None:
            return direct
        if isinstance(request, DeleteFlows):
            said, _ = self._spoken("del-flows", self._target(request.bridge), _exactly(request))
            return said if said.ok else said._replace(text=f"flows of {request.bridge}: {said.text}")
        said, text = self._bundle(request.bridge, _changes(request))
        if said.ok:
            return said
        # the switch listens soon after it has taken its ports in, but not at once
        starting = REFUSED in text or (said.errno == errno.ENOENT and self._has(request.bridge, request.port))
        return Answer(errno.EAGAIN if starting else said.errno, f"flows of {request.port} on {request.bridge}: {said.text}")

    def execute_all(self, requests: Sequence[PutFlows | DeleteFlows]) -> list[Answer]:
        """Those of one bridge in one bundle, for one process costs as much as a hundred flows; if it is refused, each by itself."""
        waiting = self._waiting()
        if waiting:
            return [waiting] * len(requests)
        found: dict[str, Answer] = {}
        for bridge in {request.bridge for request in requests}:
            its = [request for request in requests if request.bridge == bridge]
            direct = self._direct(bridge, its)
            found[bridge] = direct or self._bundle(bridge, [line for request in its for line in _changes(request)])[0]
        end = self._end()  # of all together
        return [DONE if found[request.bridge].ok else self._once_listening(request, end) for request in requests]

    def _waiting(self) -> Answer | None:
        """Wait while flows are being restored; the answer where that does not end in time, or nobody says."""
        try:
            if self._restored(self._deadline.seconds):
                return None
            self._deadline.lost()
            return Answer(errno.EAGAIN, "Open vSwitch restores its flows (other_config:flow-restore-wait), and would undo the change")
        except TryAgain as problem:
            return Answer(errno.EAGAIN, str(problem))

    def _direct(self, bridge: str, requests: Sequence[PutFlows | DeleteFlows]) -> Answer | None:
        """What became of them without ovs-ofctl; None: nothing, for it to do, and to say what is wrong."""
        limit = self._deadline.seconds
        try:
            names = [request.port for request in requests if not isinstance(request, DeleteFlows)]
            bodies = openflow_bundle.changes(requests, self._ports(bridge, names) if names else {})
            return DONE if openflow_bundle.bundle(self._socket(bridge), bodies, limit, self._clock) else None
        except TimeoutError:
            self._deadline.lost()
            return self._late(limit)
        except (StrangeError, KeyError, OSError, TryAgain):
            return None

    def _has(self, bridge: str, port: str) -> bool:
        try:
            return bool(self._ports(bridge, [port]))
        except TryAgain:
            return False

    def _late(self, limit: float) -> Answer:
        return Answer(errno.ETIMEDOUT, f"ovs-vswitchd did not answer in {limit:g} s")

    def _bundle(self, bridge: str, lines: Sequence[str]) -> tuple[Answer, str]:
        return self._run(*QUIETLY, "--bundle", "add-flows", self._target(bridge), "-", given="\n".join(lines) + "\n")

    def _socket(self, bridge: str) -> str:
        return f"{self._folder}/{bridge.replace('/', '_')}.mgmt"

    def _target(self, bridge: str) -> str:
        return f"unix:{self._socket(bridge)}"

    def _spoken(self, *arguments: str) -> tuple[Answer, str]:
        """As ``_run``, in whatever version the bridge speaks: 1.4 comes first, which prints flows as they were put."""
        said, text = self._run(*QUIETLY, *arguments)
        return self._run(*QUIETLY, *arguments, version=OTHERS) if said.errno == errno.EPROTONOSUPPORT else (said, text)

    def _run(self, *arguments: str, given: str = "", version: str = VERSION) -> tuple[Answer, str]:
        """What became of it, and all that it wrote. Raises HostRefused where there is no ovs-ofctl."""
        from netcommon.process.run import run  # few NICs have flows

        path = next((path for place in PLACES if os.access(path := f"{place}/{PROGRAM}", os.X_OK)), "")
        if not path:
            raise HostRefused(f"there is no {PROGRAM}", "install Debian's openvswitch-common")
        argv = [path, "-O", version, *arguments]
        limit = self._deadline.seconds
        outcome = run(argv, {b"LC_ALL": b"C", b"PATH": b"/usr/bin:/bin"}, limit, LIMIT, self._clock, self._proc, given.encode())
        text = outcome.output.decode(errors="replace")
        if outcome.ok:
            return DONE, text
        if outcome.timed_out:
            self._deadline.lost()
            return self._late(limit), text
        why = "; ".join(line.removeprefix(f"{PROGRAM}: ") for line in text.splitlines())[:500] or outcome.text
        if UNSPOKEN in text:
            return Answer(errno.EPROTONOSUPPORT, f"the bridge does not speak {VERSION}, which has bundles: add it to its protocols"), text
        return Answer(errno.ENOENT if any(words in text for words in NOT_THERE) else errno.EIO, why), text


def read_flow(bridge: str, line: str) -> Flow | None:
    """One line of dump-flows; None for a line that is no flow's."""
    rest = line.strip()
    if not rest.startswith("cookie="):
        return None
    counted: dict[str, str] = {}
    table = ""
    kept: list[str] = []
    *heads, rest = rest.split(", ")
    for head in heads:
        name, _, value = head.partition("=")
        if name == "cookie" or name in COUNTING:
            counted[name] = value
        elif name == "table":
            table = value
        else:
            kept.append(head)  # a time-out: nothing that we ask for
    match, _, actions = rest.rpartition(" actions=") if not rest.startswith("actions=") else ("", "", rest[8:])
    *flags, match = match.split(" ")
    kept += [flag for flag in flags if flag not in ADDED]
    fields = [field for field in match.split(",") if field]
    ports = [field.partition("=")[2] for field in fields if field.startswith("in_port=")]
    fields = [*kept, *(field for field in fields if not field.startswith("in_port="))]
    packets = counted.get("n_packets", "")
    return Flow(
        bridge,
        int(counted["cookie"], 16),
        OFPP_LOCAL if ports == ["LOCAL"] else int(ports[0]) if ports and ports[0].isdecimal() else 0,
        written(table, ",".join(fields), actions),
        int(packets) if packets.isdecimal() else 0,
    )


def normal(parsed: str, flow: str) -> str:
    """The text of a flow (see Flow) from what parse-flows prints after "ADD". Raises SettingsInvalid for what may not be in it."""
    match, _, actions = parsed.strip().rpartition("actions=")
    words = match.split()
    table = words.pop(0).removeprefix("table:") if words and words[0].startswith("table:") else ""
    fields = words[0].split(",") if words else []
    if len(words) > 1 or any(field.startswith("in_port") or field in FLAGS or ":" in field.partition("=")[0] for field in fields):
        raise SettingsInvalid(f"flow {flow!r}: only a table, a priority, a match without in_port, and actions may be given")
    if "learn(" in actions:
        raise SettingsInvalid(f"flow {flow!r}: learn makes flows that are nobody's")
    return written(table, ",".join(fields), actions)


def written(table: str, match: str, actions: str) -> str:
    """A flow's text from its parts."""
    fields = ",".join(filter(None, (f"table={table}" if table not in ("", "0") else "", match)))
    return f"{fields} actions={actions}".lstrip()


def _exactly(request: PutFlows | DeleteFlows) -> str:
    return f"cookie={request.cookie:#x}/{EXACTLY:#x}"


def _changes(request: PutFlows | DeleteFlows) -> list[str]:
    """The lines of a bundle that puts what is asked for in the place of all that has the cookie."""
    delete = f"delete {_exactly(request)}"
    if isinstance(request, DeleteFlows):
        return [delete]
    port = '"' + request.port.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return [delete, *(added(flow, request.cookie, port) for flow in request.flows)]


def added(flow: str, cookie: int, port: str) -> str:
    """A flow's text as add-flows takes it, with cookie and in_port."""
    match, _, actions = flow.rpartition("actions=")
    return ",".join(filter(None, (f"add cookie={cookie:#x}", match.strip(), f"in_port={port}", f"actions={actions}")))
