"""What hooks read of what is kept of NICs and networks: never anything else than its own modules read, and all of it where it is plain."""

from __future__ import annotations

import json
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import kept, networks, wanted
from runtime.environment import nic_from_environment
from runtime.errors import NicInvalid, RecordTooNew, RecordUnreadable
from runtime.kept import Plain
from runtime.nic import NetworkWanted
from runtime.paths import Paths
from runtime.wanted import End, Moment, Wanted
from tests.support.nics import U1
from tests.unit.runtime.test_networks import BLUE, WRONG
from tests.unit.runtime.test_wanted import BAD, plain

NOW = Moment("now", 5.0, 5.0)

addresses = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
labels = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?\Z")
prefixes = st.tuples(st.ip_addresses(v=4), st.integers(0, 32)).map(lambda one: f"{one[0]}/{one[1]}")
said = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text("az /é", max_size=3),
        "gateway": st.just("") | st.ip_addresses(v=4).map(str),
        "gateway6": st.just("") | st.ip_addresses(v=6).map(str),
        "resolvers": st.lists(addresses, max_size=3),
        "search": st.lists(st.lists(labels, min_size=1, max_size=3).map(".".join), max_size=3),
        "routes": st.lists(st.fixed_dictionaries({"prefix": prefixes, "via": st.ip_addresses(v=4).map(str)}), max_size=3),
        "tags": st.lists(st.sampled_from(["a", "b:c", "a b", ""]), max_size=2),
        "mtu": st.sampled_from([0, 67, 68, 1400, 65535, 65536]),
    },
)
#: Anything in the place of a part of a file.
strange = st.sampled_from([None, True, 0, 1, 2.0, -1, "", "x", [], [""], {}, [{}], {"x": 1}, [[]], "-", "a b", "10.0.0.1", U1.upper()])


def in_full(data: bytes) -> Wanted | None:
    """Read a NIC's file by the module whose it is; None for a damaged one or a newer version's."""
    try:
        return wanted.from_json(data)
    except (RecordUnreadable, RecordTooNew):
        return None


@given(plain, st.none() | plain)
def test_a_nic_is_plain_or_not(one: Wanted, pending: Wanted | None) -> None:
    """Plain is what neither ends nor changes, and all of that is."""
    found = kept.plain_of(wanted.to_json(one._replace(pending=pending)))
    lasting = not any(each.end for each in (*one.local, *one.registry))
    assert found == (Plain(one.force(NOW), one.revision, one.network) if lasting and pending is None else None)


@given(plain, st.lists(st.tuples(st.integers(0, 20), strange), max_size=2))
def test_a_file_of_a_nic_that_is_strange(one: Wanted, changes: list[tuple[int, Any]]) -> None:
    """Whatever is in the place of a part: it is read as by its own module, or left to that."""
    data = json.dumps(mixed(json.loads(wanted.to_json(one)), changes)).encode()
    found, full = kept.plain_of(data), in_full(data)
    if found is not None:
        assert full is not None and full.pending is None
        assert (full.force(NOW), full.revision, full.network) == found and not list(wanted.ends(full))


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:60]))
def test_a_damaged_file_of_a_nic_is_not_plain(data: bytes) -> None:
    assert kept.plain_of(data) is None


def mixed(stored: Any, changes: list[tuple[int, Any]]) -> Any:
    """Give JSON with parts of it, by number in their order, in another shape. What was drawn stays as it is: it is drawn again."""
    stored = deepcopy(stored)
    for number, value in changes:
        places = list(walked(stored))
        if places:
            whole, name = places[number % len(places)]
            whole[name] = deepcopy(value)
    return stored


def walked(stored: Any) -> Any:
    """Give each part as what holds it and its name there."""
    for name in stored if isinstance(stored, dict) else range(len(stored)) if isinstance(stored, list) else ():
        yield stored, name
        yield from walked(stored[name])


@given(said)
def test_a_network_is_read_alike(fields: dict[str, Any]) -> None:
    """All that a registry can say of a network is plain once it is on disk."""
    try:
        network = networks.network_of(U1, "e:7", {**fields, "master": "ganeti:c1"})
    except NicInvalid:
        stored = {**json.loads(networks.to_json(NetworkWanted(U1, "e:7"))), **fields}
        assert kept.network_of(json.dumps(stored).encode(), U1) is None
        return
    assert kept.network_of(networks.to_json(network), U1) == network
    assert kept.told(json.loads(json.dumps(kept.document(network)))) == network


@given(said, st.lists(st.tuples(st.integers(0, 30), strange), max_size=2))
def test_a_file_of_a_network_that_is_strange(fields: dict[str, Any], changes: list[tuple[int, Any]]) -> None:
    stored = {**json.loads(networks.to_json(NetworkWanted(U1, "e:7"))), **fields}
    data = json.dumps(mixed(stored, changes)).encode()
    found = kept.network_of(data, U1)
    if found is not None:
        assert networks.from_json(data, U1) == found


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_damaged_file_of_a_network_is_not_plain(wrong: dict[str, Any]) -> None:
    stored = {**json.loads(networks.to_json(BLUE)), **wrong}
    assert kept.network_of(json.dumps(stored).encode(), U1) is None


def test_a_nic_with_what_is_kept(tmp_path: Path) -> None:
    """Of a NIC with nothing kept nothing is read; what its hypervisor names is its network, and else the registry's."""
    paths = Paths.under(str(tmp_path))
    nic = nic_from_environment({"MODE": "bridged", "LINK": "br0", "INTERFACE": "tap0", "INTERFACE_UUID": U1})
    assert kept.completed(paths, nic) == nic
    other = U1[:-1] + ("0" if U1[-1] != "0" else "1")
    wanted.write(paths, U1, Wanted(registry=(wanted.Entry("rate_in", "8mbit"),), revision="e:7", network=U1))
    networks.write(paths, BLUE)
    networks.write(paths, BLUE._replace(uuid=other, mtu=1300))
    found = kept.completed(paths, nic)
    assert found is not None and (found.wanted[0].value, found.revision, found.told) == ("8mbit", "e:7", BLUE)
    found = kept.completed(paths, nic._replace(network=nic.network._replace(uuid=other)))
    assert found is not None and found.told == BLUE._replace(uuid=other, mtu=1300)
    (Path(paths.wanted) / "networks" / f"{U1}.json").write_text("damaged")
    assert kept.completed(paths, nic) is None


@given(
    st.floats(0, 20),
    st.floats(0, 20),
    st.sampled_from(["now", "before"]),
    st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), max_size=3),
)
def test_ends_are_judged_alike(monotonic: float, wall: float, boot: str, ends: list[tuple[float, float]]) -> None:
    """As wanted.over has it, of which this is the part that hooks load."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.under(folder)
        for number, (by_boot, by_wall) in enumerate(ends):
            end = End(Moment("now", 0.0, 0.0), Moment("now", by_boot, by_wall))
            wanted.write(paths, U1[:-1] + str(number), Wanted(local=(wanted.Entry("rate_in", "8mbit", end),)))
        assert kept.none_over(paths, boot, monotonic, wall) == (not wanted.over(paths, Moment(boot, monotonic, wall)))


@pytest.mark.parametrize("target", ["", "x", "x 1", "x nan 9", "x 9 nan", "x 9 9 9", "now inf 7", "now 9 x", " 9 9", "now 9 -1"])
def test_a_link_that_says_nothing_is_looked_at(tmp_path: Path, target: str) -> None:
    paths = Paths.under(str(tmp_path))
    Path(paths.wanted).mkdir(parents=True)
    if target:
        (Path(paths.wanted) / "ends").symlink_to(target)
    else:
        (Path(paths.wanted) / "ends").mkdir()
    assert not kept.none_over(paths, NOW.boot, NOW.monotonic, NOW.wall) and wanted.over(paths, NOW)
