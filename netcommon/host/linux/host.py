"""The Linux host: rtnetlink, OVSDB and procfs behind the interface of netcommon.host.api.host. No other program is run."""

from __future__ import annotations

from netcommon.host.api.host import NOT_TRIED, Answer, held_up, is_behind
from netcommon.host.api.requests import RTNETLINK, service
from netcommon.host.linux.sockets import Sockets, merged
from netcommon.host.linux.views import LiveView
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import Service, View
    from netcommon.host.api.requests import Request


class LinuxHost(Sockets):
    """This machine, in the network namespace that the caller is in at the first request. One for each thread."""

    def service(self, name: str) -> Service:
        """See Sockets; rules by their texts are read back when they are loaded."""
        if name == "nft text":
            from netcommon.host.nftables.libnftables import RulesByText  # only firewall profiles need it

            return RulesByText(self.nftables, self.view)
        return super().service(name)

    def view(self) -> LiveView:
        return LiveView(self)

    def snapshot(self) -> View:
        from netcommon.host.linux.snapshot import Snapshot  # not in the path of one NIC

        return Snapshot(self.view())

    def nftables_port(self) -> int:
        """See Host; 0 also where this kernel has no nftables: then it tells nothing of them either."""
        try:
            return self.nftables.netlink.port()
        except OSError:
            return 0

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        return self.proc.holder(device, candidates)

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """See Host. With ``stop`` each netlink message waits for the one before: the kernel would go on to the next.

        A link's requests that share a message are not atomic: after a refusal, one that is answered "not tried" may hold.
        """
        answers: list[Answer] = []
        for group in _groups(requests):
            if stop and any(not each.ok for each in answers):
                answers += [NOT_TRIED] * len(group)
            else:
                answers += self._execute(group, stop)
        return answers

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        """See Host."""
        from netcommon.host.linux.bulk import execute_each  # not in the path of one NIC

        return execute_each(self, lists, stop)

    def _execute(self, group: Sequence[Request], stop: bool) -> list[Answer]:
        name = service(group[0])
        if name != RTNETLINK:
            return [self.service(name).execute(request) for request in group]
        parts = merged(group)
        answers: list[Answer] = []
        for units in [[unit] for unit in parts] if stop else _stretches(parts):
            if (stop and any(not each.ok for each in answers)) or held_up(units[0][0], group, answers):
                answers += [NOT_TRIED] * sum(map(len, units))
            else:
                answers += self.send(units, stop)
        return answers


def _stretches(units: list[list[Request]]) -> list[list[list[Request]]]:
    """Give what is sent at once: all of it, but what is to be sent by the answers to what was before it."""
    if not any(is_behind(unit[0]) for unit in units):
        return [units]
    stretches: list[list[list[Request]]] = []
    for unit in units:
        if not stretches or is_behind(unit[0]) or is_behind(stretches[-1][0][0]):
            stretches.append([])
        stretches[-1].append(unit)
    return stretches


def _groups(requests: Sequence[Request]) -> list[list[Request]]:
    """Neighbouring requests of rtnetlink together, each of another service alone."""
    groups: list[list[Request]] = []
    for request in requests:
        if groups and service(request) == service(groups[-1][-1]) == RTNETLINK:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups
