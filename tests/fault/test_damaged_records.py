"""Records as a dying disk or a careless editor leaves them: in quarantine at once, bytes intact, said; all other NICs as ever."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netcommon.lifecycle.check import check
from runtime.record import LONGEST, UP, from_json
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.netns import slowness
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import sample
from tests.support.sim import UUIDS, Sim
from tests.support.sim import nic as nic_of
from tests.support.snapshot import diff, snapshot

LIMIT = 1.0  #: seconds of this process, or of the hook: what else the machine is busy with does not count
OTHER = {"INTERFACE_UUID": UUIDS[1], "INTERFACE": "tap1", "INTERFACE_INDEX": "1", "MAC": "aa:00:00:00:00:02", "IP": "10.0.0.6"}


def kinds(good: bytes, uuid: str = UUIDS[0]) -> dict[str, bytes]:
    """Whatever else may stand in the place of the record ``good`` of NIC ``uuid``."""
    text = good.decode()
    return {
        "empty": b"",
        "zeros": bytes(4096),
        "64 MB of zeros": bytes(64 << 20),
        "64 MB of text": b'{"a":"' + b"x" * (64 << 20) + b'"}',
        "64 MB after a good record": good + b" " * (64 << 20),
        "as long as may be, of brackets": b"[" * LONGEST,
        "as long as may be, of objects": b'{"a":' * (LONGEST // 5),
        "as long as may be, of closed objects": b"[" + b"{}," * (LONGEST // 3 - 1) + b"{}]",
        "as long as may be, of operations": text.replace('"operations":[', '"operations":[' + '{"kind":1},' * 349_000).encode()[:LONGEST],
        "as long as may be, of numbers": b"[" + (b"9" * 4299 + b",") * (LONGEST // 4300) + b"0]",
        "a number of 100000 digits": text.replace('"ifindex":', '"ifindex":' + "9" * 100_000).encode(),
        "a huge exponent": text.replace('"created":', '"created":1e99999,"x":').encode(),
        "not a number": text.replace('"created":', '"created":NaN,"x":').encode(),
        "invalid UTF-8": good.replace(b'"web', b'"web\xff'),
        "overlong UTF-8": good.replace(b'"web', b'"web\xc0\xaf'),
        "UTF-16": text.encode("utf-16"),
        "byte order mark": b"\xef\xbb\xbf" + good,
        "a name twice": good.replace(b'{"nic"', b'{"state":"closing","nic"'),
        "a name twice within": good.replace(b'"MODE":', b'"MODE":"ext","MODE":'),
        "nested 500 deep": text.replace('"operations":[', '"operations":[' + "[" * 500 + "]" * 500 + ",").encode(),
        "nested 100000 deep": text.replace('"operations":[', '"operations":[' + "[" * 100_000).encode(),
        "another NIC's": good.replace(uuid.encode(), UUIDS[2].encode()),
        "half a surrogate": text.replace('"environment":{', '"environment":{"X":"\\ud800",').encode(),
        "a NUL": text.replace('"environment":{', '"environment":{"X":"a\\u0000b",').encode(),
        "a name with an equals sign": text.replace('"environment":{', '"environment":{"A=B":"",').encode(),
        "two records": good + good,
        "a list": b"[" + good + b"]",
        "null": b"null",
    }


@pytest.fixture
def pair() -> Iterator[tuple[Sim, str, bytes]]:
    """Two NICs that are up; the path of the first one's record, and what it holds."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # as /run: megabytes cost no disk
        sim = Sim(folder)
        sim.tap("tap1")
        sim.up(nic_of("routed, table"))
        sim.up(nic_of("routed, table", **OTHER))
        path = sim.node.store.path(UUIDS[0])
        yield sim, path, Path(path).read_bytes()
        sim.node.store.close()


def in_quarantine(sim: Sim, data: bytes) -> None:
    """Fails unless ``data`` is the one file there; empties it."""
    folder = Path(sim.paths.state) / "quarantine"
    (kept,) = folder.iterdir()
    assert kept.name.startswith(f"{UUIDS[0]}.json.") and kept.stat().st_size == len(data)
    assert kept.read_bytes() == data
    kept.unlink()


def disturbed(sim: Sim, path: str, data: bytes) -> float:
    """With ``data`` for the first record, all are read: the other is as it was. How long that took."""
    Path(path).write_bytes(data)
    start = time.process_time()
    records, problems = sim.node.store.all()
    taken = time.process_time() - start
    assert [record.uuid for record in records] == [UUIDS[1]]
    assert len(problems) == 1 and UUIDS[0] in problems[0] and "quarantine" in problems[0] and problems[0].isprintable()
    assert not os.path.exists(path)
    in_quarantine(sim, data)
    return taken


def test_cut_off_at_every_byte(pair: tuple[Sim, str, bytes]) -> None:
    sim, path, good = pair
    lengths = sample(range(len(good)), 150)
    slowest = max(disturbed(sim, path, good[:length]) for length in lengths)
    assert slowest < LIMIT * slowness()
    Path(path).write_bytes(good)
    assert [record.uuid for record in sim.records()] == [UUIDS[0], UUIDS[1]]
    figures.add("damaged-records", len(lengths), 0, 0)


def test_each_bit_of_it_flipped(pair: tuple[Sim, str, bytes]) -> None:
    """It is read as a record, or quarantined; the other NIC's is read whatever happens."""
    sim, path, good = pair
    bits = sample(range(8 * len(good)), 150)
    for bit in bits:
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        Path(path).write_bytes(data)
        records, problems = sim.node.store.all()
        assert UUIDS[1] in [record.uuid for record in records] and len(records) + len(problems) == 2, (bit, problems)
        if len(records) == 1 and "newer" not in problems[0]:
            in_quarantine(sim, bytes(data))
    figures.add("damaged-records", len(bits), 0, 0)


def test_every_other_kind_of_nonsense(pair: tuple[Sim, str, bytes]) -> None:
    sim, path, good = pair
    found = kinds(good)
    assert len(set(found.values())) == len(found) and good not in found.values()
    slow = {name: taken for name, data in found.items() if (taken := disturbed(sim, path, data)) > LIMIT * slowness()}
    assert slow == {}
    figures.add("damaged-records", len(found), 0, 0)


@pytest.mark.parametrize("name", ["64 MB of zeros", "invalid UTF-8", "a name twice", "as long as may be, of objects", "empty", "a NUL"])
def test_the_life_of_the_other_nic_goes_on(pair: tuple[Sim, str, bytes], name: str) -> None:
    """It is checked, goes down and comes up again; and the NIC whose record it was comes up anew, and takes all of it with it."""
    sim, path, good = pair
    data = kinds(good)[name]
    Path(path).write_bytes(data)
    start = time.process_time()
    assert check(sim.node, sim.node.host.view(), sim.record(UUIDS[1])).good
    assert sim.up(nic_of("routed, table", **OTHER)).changed is False
    assert sim.down(nic_of("routed, table", **OTHER)).changed
    assert sim.up(nic_of("routed, table", **OTHER)).changed
    assert sim.up(nic_of("routed, table")).changed
    assert time.process_time() - start < 2 * LIMIT * slowness()
    assert {record.state for record in sim.records()} == {UP}
    in_quarantine(sim, data)
    sim.down(nic_of("routed, table"))
    sim.down(nic_of("routed, table", **OTHER))
    for tap in ("tap0", "tap1"):  # what it was like before us went with the record; it ends with the device
        sim.host.remove_link(tap)
    bare = Sim(f"{sim.paths.state}/bare")
    bare.host.remove_link("tap0")
    assert sim.picture() == bare.picture()
    assert [name for name in sim.files() if not name.startswith("bare/")] == []
    figures.add("damaged-records", 1, 0, 0)


def hooks_with(node: Node, name: str, make: Callable[[bytes], bytes]) -> None:
    """The doors of two NICs while the first one's record is what ``make`` makes of it."""
    first, second = environment(0), environment(1)
    before = snapshot(())
    taps = node.tap("tap0"), node.tap("tap1")
    assert rundoor("kvm-ifup", first).status == rundoor("kvm-ifup", second).status == 0
    path = Path(f"/run/netcommon/nics/{first['INTERFACE_UUID']}.json")
    assert from_json(path.read_bytes())
    assert json.loads(path.read_bytes())["state"] == UP
    good = path.read_bytes()
    path.write_bytes(make(good))
    assert path.read_bytes() != good, name
    plain = rundoor("kvm-ifup", second)
    assert (plain.status, plain.stderr) == (0, "")
    busy = cpu()
    down = rundoor("kvm-ifdown", first, "tap0", "hot-remove")
    assert down.status == 0 and "quarantine" in down.stderr and first["INTERFACE_UUID"] in down.stderr, (name, down)
    assert cpu() - busy < LIMIT * slowness(), name
    assert len(os.listdir("/run/netcommon/quarantine")) == 1
    for each in (first, second, first):  # up cleans what the lost record has left on its device
        assert rundoor("kvm-ifup", each).status == 0
    for each in (first, second):
        assert rundoor("kvm-ifdown", each, each["INTERFACE"], "hot-remove").status == 0
    for tap in taps:  # what they were like before us went with the record; it ends with the device
        tap.close()
    assert diff(before, snapshot(())) == []
    for kept in Path("/run/netcommon/quarantine").iterdir():
        kept.unlink()


def cpu() -> float:
    """Seconds that the programs started so far have used."""
    used = os.times()
    return used.children_user + used.children_system


@pytest.mark.no_agent("about what a hook says of a record that does not parse: an agent puts it in quarantine before")
def test_the_hooks_go_on(node: Node) -> None:
    names = sample(sorted(kinds(b"{}")), 2)
    for name in names:
        hooks_with(node, name, lambda good, name=name: kinds(good, environment(0)["INTERFACE_UUID"])[name])  # type: ignore[misc]
    figures.add("damaged-records", len(names), 0, 0)
