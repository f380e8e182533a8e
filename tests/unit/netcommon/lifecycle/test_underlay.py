"""The node's part of an underlay on a simulated host: made, verified, put back, taken away, and nothing else touched."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET6, PROTOCOL, REST, Address, Link, Route
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddAddress, AddRoute, DeleteAddress, DeleteRoute
from netcommon.lifecycle import underlay as module
from netcommon.lifecycle.gc import KEPT, REMOVED
from netcommon.lifecycle.underlay import Held, hold, seen
from netcommon.operations.base import Operation
from netcommon.operations.underlay import NodeAddress
from netcommon.plan.underlay import plan
from runtime import membership, underlay, underlay_record
from runtime.errors import HostRefused, TryAgain
from tests.support.node_underlay import OWN, PREFIX, address, give, is_rest_unreachable, join, known, marked
from tests.support.registry import NODES
from tests.support.sim import Sim, nic

LOOPBACK = 1


@pytest.fixture
def given(sim: Sim) -> Sim:
    """A node with two endpoints, of which nothing is made yet."""
    give(sim.paths, 0, 1)
    return sim


def held(sim: Sim) -> Held:
    return hold(sim.node, sim.log)


def there(sim: Sim, device: str = "lo") -> list[str]:
    return marked(sim.host.view(), device)


def rest(sim: Sim) -> bool:
    return is_rest_unreachable(sim.host.view())


def test_a_node_without_an_underlay_is_left_alone(sim: Sim) -> None:
    """Also one that has joined a registry which has none."""
    assert held(sim) == Held()
    join(sim.paths)
    assert held(sim) == Held()
    assert sim.picture() == sim.before and sim.files() == []


def test_all_of_it_is_made_in_order(given: Sim) -> None:
    """The route for the rest comes before any address."""
    assert held(given)._replace(made=()) == Held(PREFIX, 1, 3, (OWN, address(0), address(1)))
    assert there(given) == sorted([OWN, address(0), address(1)]) and rest(given)
    kinds = [type(request) for request in given.requests()]
    assert kinds == [AddRoute, AddAddress, AddAddress, AddAddress]


def test_nothing_is_begun_from_an_endpoints_address(given: Sim) -> None:
    held(given)
    deprecated = {each.address: each.deprecated for each in given.host.view().addresses(LOOPBACK) if each.protocol == PROTOCOL}
    assert deprecated == {OWN: False, address(0): True, address(1): True}


def test_a_second_look_changes_nothing(given: Sim) -> None:
    first = held(given)
    given.requests()
    path = Path(given.paths.state, "underlay/1.json")
    before = path.stat()
    assert held(given) == first._replace(made=())
    assert given.requests() == [] and path.stat().st_ino == before.st_ino


@pytest.mark.parametrize("lost", ["own", "endpoint", "route", "preferred", "all"])
def test_what_was_deleted_by_hand_is_put_back(given: Sim, lost: str) -> None:
    held(given)
    before = given.picture()
    view = given.host.view()
    addresses = [each for each in view.addresses(LOOPBACK) if each.protocol == PROTOCOL]
    gone = {"own": addresses[:1], "endpoint": addresses[1:2], "all": addresses}.get(lost, [])
    requests = [DeleteAddress(each) for each in gone]
    if lost in ("route", "all"):
        requests.append(DeleteRoute(Route(AF_INET6, 254, PREFIX, 0, scope=0, metric=REST, type=7)))  # type: ignore[arg-type]
    if lost == "preferred":
        requests.append(AddAddress(addresses[1]._replace(deprecated=False)))  # type: ignore[arg-type]
    assert all(answer.ok for answer in given.host.execute(requests, stop=True))
    judged: list[tuple[str, str]] = []

    def judge(operation: Operation, why: str) -> bool:
        judged.append((operation.KIND, why))
        return True

    found = hold(given.node, given.log, judge)
    assert given.picture() == before and len(judged) == len(requests) == len(found.made) and found.problem == ""


def test_what_the_policy_leaves_alone_stays_so(given: Sim) -> None:
    held(given)
    given.host.execute([DeleteAddress(Address(AF_INET6, OWN, 128, LOOPBACK))], stop=True)
    found = hold(given.node, given.log, lambda _operation, _why: False)
    assert found.there == (address(0), address(1)) and found.wanted == 3 and OWN not in there(given)
    assert OWN in found.problem and "the address is gone" in found.problem and address(0) not in found.problem
    assert hold(given.node, given.log, lambda _operation, _why: None).problem == "", "nobody looks at it"


def test_of_much_that_is_not_there_little_is_said(given: Sim) -> None:
    give(given.paths, *range(20), generation=2)
    held(given)
    gone = [DeleteAddress(each) for each in given.host.view().addresses(LOOPBACK)]
    given.host.execute(gone, stop=True)
    problem = hold(given.node, given.log, lambda _operation, _why: False).problem
    assert problem.count("the address is gone") == 3 and problem.endswith("; and 18 more")


def test_an_endpoint_that_is_over_goes(given: Sim) -> None:
    held(given)
    give(given.paths, 1, 2, generation=2)
    found = held(given)
    assert found.there == (OWN, address(1), address(2)) and found.generation == 2
    assert there(given) == sorted([OWN, address(1), address(2)])
    assert seen(given.node, given.host.view()) == (2, (OWN, address(1), address(2)))


def test_all_of_it_goes_in_an_order_that_leaves_no_address_without_a_route(given: Sim) -> None:
    """Endpoints, the node's own address, the route."""
    held(given)
    given.requests()
    underlay.remove(given.paths)
    assert held(given) == Held()
    requests = given.requests()
    assert [type(each) for each in requests] == [DeleteAddress, DeleteAddress, DeleteAddress, DeleteRoute]
    assert requests[2].address.address == OWN  # type: ignore[union-attr]
    assert given.picture() == given.before and given.files() == []


@pytest.mark.parametrize("left", ["left", "another"])
def test_a_node_that_has_left_its_registry_has_no_underlay(given: Sim, left: str) -> None:
    """Nor one that has the file of another node, whose disk was copied."""
    held(given)
    Path(given.paths.lib, membership.NAME).unlink()
    if left == "another":
        join(given.paths, NODES[1])
    assert held(given) == Held()
    assert given.picture() == given.before


def test_it_is_there_again_after_a_boot(given: Sim) -> None:
    """By the file alone: the record went with the boot, and so has all that was made."""
    held(given)
    given.reboot()
    given.host.kernel.addresses = [each for each in given.host.kernel.addresses if each.protocol != PROTOCOL]
    assert held(given).there == (OWN, address(0), address(1)) and rest(given)


def test_what_was_there_before_us_stays(given: Sim) -> None:
    """An administrator's own address and route count, and are left when ours go."""
    lo, route = Address(AF_INET6, OWN, 128, LOOPBACK, 4), Route(AF_INET6, 254, PREFIX, 0, 4, 0, metric=REST, type=7)
    assert all(each.ok for each in given.host.execute([AddAddress(lo), AddRoute(route)], stop=True))
    found = held(given)
    assert found.there == (OWN, address(0), address(1)) and there(given) == sorted([address(0), address(1)])
    underlay.remove(given.paths)
    held(given)
    view = given.host.view()
    assert lo in view.addresses(LOOPBACK) and view.routes(AF_INET6, 254, PREFIX) == [route._replace(index=LOOPBACK)]


@pytest.mark.parametrize("own", [OWN, address(0)])
@pytest.mark.parametrize(("length", "protocol"), [(64, 0), (64, PROTOCOL), (48, 4), (128, 4)])
def test_an_address_by_hand_is_taken_as_it_is(given: Sim, own: str, length: int, protocol: int) -> None:
    """Whatever its length, its mark and its flags: it counts as there, and nothing of it is changed, then or later."""
    theirs = Address(AF_INET6, own, length, LOOPBACK, protocol, deprecated=own == OWN)
    given.host.execute([AddAddress(theirs)], stop=True)
    found = held(given)
    assert found.there == (OWN, address(0), address(1)) and found.problem == ""
    assert held(given).made == () and theirs in given.host.view().addresses(LOOPBACK)
    underlay.remove(given.paths)
    assert held(given) == Held()
    assert given.host.view().addresses(LOOPBACK) == [theirs]


@pytest.mark.parametrize("length", [64, 128])
def test_an_address_that_somebody_has_put_in_the_place_of_ours_is_taken_as_it_is(given: Sim, length: int) -> None:
    held(given)
    theirs = Address(AF_INET6, address(0), length, LOOPBACK, 4)
    given.host.execute([DeleteAddress(theirs._replace(length=128)), AddAddress(theirs)], stop=True)
    found = held(given)
    assert (found.made, found.problem) == ((), "") and found.there == (OWN, address(0), address(1))
    underlay.remove(given.paths)
    held(given)
    assert given.host.view().addresses(LOOPBACK) == [theirs]


def test_what_somebody_takes_away_of_his_own_is_made(given: Sim) -> None:
    theirs = Address(AF_INET6, address(0), 64, LOOPBACK, 0)
    given.host.execute([AddAddress(theirs)], stop=True)
    held(given)
    given.host.execute([DeleteAddress(theirs)], stop=True)
    assert held(given).problem == "" and there(given) == sorted([OWN, address(0), address(1)])


def test_a_kernel_without_marks_goes_by_the_record(given: Sim) -> None:
    """Before 5.18 the kernel keeps no protocol of an address."""
    held(given)
    kernel = given.host.kernel
    kernel.addresses = [each._replace(protocol=0) for each in kernel.addresses]
    given.requests()
    held(given)
    assert given.requests() == []
    underlay.remove(given.paths)
    held(given)
    assert given.picture() == given.before


def test_an_address_that_somebody_has_made_his_own_is_left(given: Sim) -> None:
    held(given)
    theirs = Address(AF_INET6, address(0), 128, LOOPBACK, 4, deprecated=True)
    given.host.execute([AddAddress(theirs)], stop=True)
    underlay.remove(given.paths)
    held(given)
    assert given.host.view().addresses(LOOPBACK) == [theirs]


def test_a_device_that_is_not_there_is_one_line(given: Sim) -> None:
    given.settings = given.settings._replace(underlay_device="dummy0")
    found = held(given)
    assert found.problem == "device dummy0 does not exist: make it, or correct [underlay] device"
    assert found.there == () and found.wanted == 3
    given.host.add_link(Link(0, "dummy0", "dummy", up=True))
    assert held(given).there == (OWN, address(0), address(1)) and there(given, "dummy0") and rest(given)


def test_another_device_has_them_before_the_first_loses_them(given: Sim) -> None:
    held(given)
    given.requests()
    dummy = given.host.add_link(Link(0, "dummy0", "dummy", up=True)).index
    given.settings = given.settings._replace(underlay_device="dummy0")
    assert held(given).problem == ""
    asked = [(type(each), each.address.index) for each in given.requests()]  # type: ignore[union-attr]
    assert asked == [(AddAddress, dummy)] * 3 + [(DeleteAddress, LOOPBACK)] * 3
    assert there(given) == [] and len(there(given, "dummy0")) == 3


def test_a_device_that_does_not_come_leaves_what_there_is(given: Sim) -> None:
    held(given)
    before = given.picture()
    given.settings = given.settings._replace(underlay_device="dummy0")
    assert "dummy0 does not exist" in held(given).problem
    assert given.picture() == before
    give(given.paths, 1, generation=2)
    held(given)
    assert there(given) == sorted([OWN, address(1)])  # what is over goes all the same


def test_a_device_that_was_made_anew_gets_them_again(given: Sim) -> None:
    given.settings = given.settings._replace(underlay_device="dummy0")
    given.host.add_link(Link(0, "dummy0", "dummy", up=True))
    held(given)
    given.host.remove_link("dummy0")
    assert held(given).there == ()
    given.host.add_link(Link(0, "dummy0", "dummy", up=True))
    assert len(held(given).there) == len(there(given, "dummy0")) == 3


def test_a_device_that_is_down_is_said_and_nothing_is_confirmed(given: Sim) -> None:
    given.settings = given.settings._replace(underlay_device="dummy0")
    given.host.add_link(Link(0, "dummy0", "dummy"))
    found = held(given)
    assert found.problem == "dummy0 is down: nobody reaches its addresses" and found.there == ()
    assert seen(given.node, given.host.view()) == (1, ())


def test_a_route_of_somebody_elses_in_the_place_is_refused(given: Sim) -> None:
    kernel = given.host.kernel
    kernel.add_route(Route(AF_INET6, 254, PREFIX, given.index("br0"), 4, 0, metric=REST))
    before = given.picture()
    assert "where that of the underlay belongs" in held(given).problem
    assert [each for each in given.picture()["routes"] if each not in before["routes"]] == []


@pytest.mark.parametrize("number", range(4))
def test_what_the_kernel_refuses_is_tried_again(given: Sim, number: int) -> None:
    """Nothing that was made before is forgotten."""
    with given.failing(number, Answer(errno.ENOMEM, "no memory")):
        assert "no memory" in held(given).problem
    assert held(given).problem == "" and len(there(given)) == 3 and rest(given)
    underlay.remove(given.paths)
    held(given)
    assert given.picture() == given.before


class Killed(BaseException):
    """The agent is killed."""


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_never_there_is_made_whatever_the_policy_says(given: Sim, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """Its first making has failed, or was cut short: nobody has deleted anything."""

    def fail(*_given: object) -> None:
        raise Killed if killed else TryAgain("no buffer space")

    def leave(operation: Operation, _why: str) -> bool:
        judged.append(operation)
        return False

    judged: list[Operation] = []
    with monkeypatch.context() as patch:
        patch.setattr("netcommon.lifecycle.execute.apply", fail)
        for _ in range(2):
            with pytest.raises(Killed) if killed else nullcontext():
                hold(given.node, given.log, leave)
    found = hold(given.node, given.log, leave, lambda operation: "::1:0" not in operation.describe())
    assert found.there == (OWN, address(1)) and f"{address(0)}/128 dev lo" in found.problem and "the address is gone" in found.problem
    assert hold(given.node, given.log, leave).there == (OWN, address(0), address(1)) and judged == []
    given.host.execute([DeleteAddress(Address(AF_INET6, address(0), 128, LOOPBACK))], stop=True)
    assert hold(given.node, given.log, leave).there == (OWN, address(1)), "it was there, and somebody has deleted it"
    assert len(judged) == 1


def test_what_was_never_there_is_so_while_its_device_has_no_ipv6(given: Sim) -> None:
    """The route, which was there, has gone with that."""
    with given.failing(1, Answer(errno.ENOBUFS, "no buffer space")):
        assert "no buffer space" in held(given).problem
    settings = given.host.kernel.settings
    for says in ("1", "0"):
        settings.write("net/ipv6/conf/lo/disable_ipv6", says)
        found = hold(given.node, given.log, lambda operation, _why: operation.KIND == "unreachable-rest")
    assert found.there == (OWN, address(0), address(1)) and found.problem == ""


def test_what_is_not_there_after_it_was_made_is_said(given: Sim) -> None:
    """The kernel has refused nothing, and somebody was quicker: then nothing of before is taken away either."""
    held(given)
    give(given.paths, 1, 2, generation=2)
    given.requests()
    with given.failing(0, Answer(0)):
        found = held(given)
    assert f"{address(2)}/128" in found.problem and "the address is gone" in found.problem
    assert found.made == () and [each.identity() for each in found.failed] == [f"node-address {LOOPBACK} {address(2)}"]
    assert found.there == (OWN, address(1)) and there(given) == sorted([OWN, address(0), address(1)])
    assert held(given).problem == "" and there(given) == sorted([OWN, address(1), address(2)])


@pytest.mark.parametrize("number", range(4))
def test_what_cannot_be_taken_away_stays_on_record(given: Sim, number: int) -> None:
    held(given)
    underlay.remove(given.paths)
    given.requests()
    with given.failing(number, Answer(errno.EBUSY, "busy"), times=1):
        assert "could not be undone" in held(given).problem
    assert held(given).problem == ""
    assert given.picture() == given.before and given.files() == []


def test_a_damaged_record_loses_nothing(given: Sim) -> None:
    """Find what bears our mark without it."""
    held(given)
    path = Path(given.paths.state, "underlay/1.json")
    path.write_text("{}")
    given.requests()
    found = held(given)
    assert "quarantine/1.json-0" in found.problem and given.requests() == []
    underlay.remove(given.paths)
    held(given)
    assert given.picture() == given.before


@pytest.mark.parametrize("text", ["", "{}", '{"schema":99}'])
def test_a_file_that_says_nothing_leaves_what_there_is(given: Sim, text: str) -> None:
    held(given)
    before = given.picture()
    Path(given.paths.lib, underlay.NAME).write_text(text)
    found = held(given)
    assert underlay.NAME in found.problem and given.picture() == before
    given.host.execute([DeleteAddress(Address(AF_INET6, OWN, 128, LOOPBACK))], stop=True)
    held(given)
    assert given.picture() == before


def test_gc_takes_what_is_on_no_record_and_leaves_the_rest(given: Sim) -> None:
    """The record may be lost with all of /run/netcommon, and the agent be away."""
    held(given)
    before = given.picture()
    stray = Address(AF_INET6, "fd00:1:2:9::1:0", 128, LOOPBACK)
    route = Route(AF_INET6, 254, "fd00:1:2:9::/64", 0, scope=0, metric=REST, type=7)
    given.host.execute([AddRoute(route), AddAddress(stray)], stop=True)
    assert [each.action for each in given.gc()] == [REMOVED, REMOVED]
    assert given.picture() == before
    underlay_record.remove(given.paths, 1)
    assert given.gc() == [] and given.picture() == before
    Path(given.paths.lib, underlay.NAME).write_text("{}")
    given.up(nic("routed, table"))
    assert [each.action for each in given.gc()] == [KEPT] * 5  # four things, and what is wrong with the file
    assert there(given) == sorted([OWN, address(0), address(1)])


def test_what_is_known_is_planned_in_one_order() -> None:
    planned: list[Operation] = plan(known(1, 0), "lo")
    assert [each.describe() for each in planned] == [
        f"ip -6 route add unreachable {PREFIX} metric {REST} protocol 174",
        f"ip -6 address replace {OWN}/128 dev lo nodad noprefixroute proto 174",
        f"ip -6 address replace {address(1)}/128 dev lo nodad noprefixroute preferred_lft 0 proto 174",
        f"ip -6 address replace {address(0)}/128 dev lo nodad noprefixroute preferred_lft 0 proto 174",
    ]
    assert plan(None, "lo") == []


def test_a_device_without_ipv6_is_said(given: Sim) -> None:
    given.host.kernel.settings.write("net/ipv6/conf/lo/disable_ipv6", "1")
    assert held(given).problem == "device lo has no IPv6: sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
    with pytest.raises(HostRefused):
        NodeAddress("lo", OWN, endpoint=False).resolve(given.host.view(), [])
    assert module.seen(given.node, given.host.view())[1] == ()
