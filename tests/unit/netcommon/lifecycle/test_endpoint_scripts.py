"""Scripts of endpoint.d: what they are told when an endpoint comes, changes or goes, once, whatever was killed between."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from netcommon.lifecycle import endpoint_scripts
from netcommon.lifecycle.endpoint_scripts import concerned, tell
from netcommon.lifecycle.underlay import hold
from netcommon.process.run import Outcome, run
from netcommon.scripts import site as custom
from runtime import underlay
from runtime.errors import HostRefused
from tests.support.node_underlay import address, endpoint, join, said
from tests.support.registry import NODES
from tests.support.sim import Sim

SCRIPT = """#!/bin/sh
echo "$1 $2 $INSTANCE $NETCOMMON_ENDPOINT_KIND $NETCOMMON_ENDPOINT_ADDRESS $NETCOMMON_ENDPOINT_NAME \
${NETCOMMON_ENDPOINT_MIGRATING} ${NETCOMMON_ENDPOINT_CONSOLE_ADDRESS:-none} $NETCOMMON_CONTEXT" >> "$(dirname "$0")/../told"
"""


class Site:
    """A node whose site has a script."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.folder = Path(sim.paths.etc, "endpoint.d")
        self.script()

    def script(self, text: str = SCRIPT, name: str = "50-tell") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def knows(self, *endpoints: dict[str, Any], made: bool = True) -> None:
        """Let a registry say that the node has these endpoints."""
        join(self.sim.paths)
        underlay.write(self.sim.paths, underlay.underlay_of(NODES[0], "e:1", said(*endpoints)))
        if made:
            hold(self.sim.node, self.sim.log)

    def told(self) -> list[str]:
        """Run them; give what they were told."""
        tell(self.sim.node, self.sim.log)
        file = Path(self.sim.paths.etc, "told")
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def site(sim: Sim) -> Iterator[Site]:
    yield Site(sim)


def expected(number: int, context: str, name: str | None = None, migrating: str = "no", now: bool = True) -> str:
    said = endpoint(number)
    shown = said["name"] if name is None else name
    console = address(number) if now else "none"
    return f"{address(number)} {context} {said['instance']} console {address(number)} {shown} {migrating} {console} {context}"


def test_what_comes_changes_and_goes_is_told_once(site: Site) -> None:
    site.knows(endpoint(0), endpoint(1))
    assert site.told() == [expected(0, "endpoint-up"), expected(1, "endpoint-up")]
    assert site.told() == []
    site.knows(endpoint(0), {**endpoint(1), "name": "", "migrating": True})
    assert site.told() == [expected(1, "endpoint-change", "", "yes")]
    site.knows(endpoint(0))
    assert site.told() == [expected(1, "endpoint-down", "", "yes", now=False)]
    underlay.remove(site.sim.paths)
    assert site.told() == [expected(0, "endpoint-down", "", now=False)]
    assert site.told() == []


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_guests_of_one_name_each_has_its_own(site: Site, order: int) -> None:
    """A Ganeti cluster's, and one of the node."""
    site.knows(*[endpoint(0), endpoint(1, instance="web0", cluster="gnt.example.com")][::order])
    told = [line.split() for line in site.told()]
    assert len(told) == 2 and all(line[0] == line[4] == line[7] for line in told)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_of_one_kind_that_with_the_name_is_told(site: Site, order: int) -> None:
    """Tell scripts of the endpoint with the name alone; when the name moves, the former one is told as gone: nothing listens there."""
    one, two = endpoint(0, state="there"), endpoint(1, instance="web0", state="there", name="")
    site.knows(*[one, two][::order])
    assert [line.split()[:2] for line in site.told()] == [[address(0), "endpoint-up"]]
    site.knows(*[{**one, "name": ""}, {**two, "name": one["name"]}][::order])
    told = [line.split() for line in site.told()]
    assert [line[:2] for line in told] == [[address(0), "endpoint-down"], [address(1), "endpoint-up"]]
    assert told[1][7] == address(1)
    assert site.told() == []


def test_what_is_not_there_yet_has_not_come(site: Site) -> None:
    site.knows(endpoint(0), made=False)
    assert site.told() == []
    site.knows(endpoint(0))
    assert site.told() == [expected(0, "endpoint-up")]


def test_who_was_killed_before_they_had_ended_runs_them_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.knows(endpoint(0), endpoint(1))
    write: Callable[..., None] = endpoint_scripts._write

    def killed(node: Any, told: Any) -> None:
        if len(told) == 2:
            raise KeyboardInterrupt
        write(node, told)

    monkeypatch.setattr(endpoint_scripts, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        site.told()
    monkeypatch.undo()
    assert [line.split()[0] for line in site.told()] == [address(0), address(1), address(1)]


def test_after_a_boot_all_is_told_again(site: Site) -> None:
    site.knows(endpoint(0))
    site.told()
    site.sim.reboot()
    assert site.told() == []
    hold(site.sim.node, site.sim.log)
    assert site.told() == [expected(0, "endpoint-up")]


def test_without_scripts_nothing_is_kept_and_those_that_come_are_told_all(site: Site) -> None:
    netns = site.sim.host.identity().netns
    site.knows(endpoint(0))
    site.told()
    (site.folder / "50-tell").unlink()
    assert concerned(site.sim.paths, netns)
    assert site.told() == [] and not concerned(site.sim.paths, netns)
    site.script()
    assert concerned(site.sim.paths, netns) and site.told() == [expected(0, "endpoint-up")]


def test_one_that_fails_is_said_and_keeps_nothing_from_being_told(site: Site) -> None:
    site.script("#!/bin/sh\necho no\nexit 3\n", "10-fails")
    site.knows(endpoint(0))
    assert site.told() == [expected(0, "endpoint-up")] and site.told() == []
    assert any("10-fails" in line and "3" in line for line in site.sim.lines)


def test_what_is_kept_and_cannot_be_read_is_told_again(site: Site) -> None:
    site.knows(endpoint(0))
    site.told()
    (kept,) = Path(site.sim.paths.state, "underlay").glob("told-*.json")
    for text in ("{", '{"schema": 1, "endpoints": 7}', kept.read_text().replace('"kind"', '"sort"')):
        kept.write_text(text)
        assert site.told() == [expected(0, "endpoint-up")]


def test_what_fails_for_one_guest_keeps_no_other_from_being_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the other guests' scripts when one cannot be started and nothing can be written, and later that one's script alone."""
    write, run = endpoint_scripts._write, custom.run_each
    full = True

    def refuse(node: Any, told: Any) -> None:
        if full:
            raise HostRefused("no space left on device")
        write(node, told)

    def lacks(scripts: Any, given: custom.Call, *more: Any) -> Any:
        if full and given.tap == address(0):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return run(scripts, given, *more)

    monkeypatch.setattr(endpoint_scripts, "_write", refuse)
    monkeypatch.setattr(custom, "run_each", lacks)
    site.knows(*map(endpoint, range(3)))
    unwritten, problem = tell(site.sim.node, site.sim.log)
    told = Path(site.sim.paths.etc, "told")
    assert told.read_text().splitlines() == [expected(1, "endpoint-up"), expected(2, "endpoint-up")]
    assert address(0) in problem and "no space left" in problem
    full = False
    assert tell(site.sim.node, site.sim.log, unwritten) == (None, "")
    assert told.read_text().splitlines()[2:] == [expected(0, "endpoint-up")]
    told.unlink()
    assert site.told() == []


def unbegun(site: Site, how: str) -> Callable[[], None]:
    """Let there be another script, which cannot be begun; give what mends it."""
    script = site.folder / "60-more"
    text = SCRIPT.replace('echo "', 'echo "more ')
    if how == "link":
        script.symlink_to(site.folder / "nothing")
        return lambda: (script.unlink(), site.script(text, script.name))[1]
    site.script("#!/nowhere/sh\n" if how == "interpreter" else text, script.name)
    if how == "mode":
        script.chmod(0o777)
    return lambda: site.script(text, script.name)


@pytest.mark.parametrize("how", ["mode", "interpreter", "link"])
def test_one_that_cannot_be_begun_is_told_when_it_can_be_and_no_other_one_again(site: Site, how: str) -> None:
    """Say once what the remedy is, however often it is tried; nothing of it is in the log."""
    mend = unbegun(site, how)
    site.knows(endpoint(0), endpoint(1))
    first = tell(site.sim.node, site.sim.log)
    assert first[0] is None and "60-more" in first[1] and "or remove, what is named" in first[1]
    assert f"endpoint-up of {address(0)} and 1 more" in first[1]
    assert site.told() == [expected(0, "endpoint-up"), expected(1, "endpoint-up")]
    site.knows(endpoint(1))
    assert site.told() == [expected(0, "endpoint-down", "", now=False)], "what was not told that it came is not told that it has gone"
    assert not any("60-more" in line for line in site.sim.lines)
    mend()
    assert site.told() == [f"more {expected(1, 'endpoint-up')}"] and tell(site.sim.node, site.sim.log) == (None, "")
    assert site.told() == []


def test_one_that_can_be_begun_no_more_is_owed_what_has_gone_until_it_is_removed(site: Site) -> None:
    mend = unbegun(site, "mode")
    mend()
    site.knows(endpoint(0))
    assert len(site.told()) == 2
    (site.folder / "60-more").chmod(0o777)
    underlay.remove(site.sim.paths)
    assert site.told() == [expected(0, "endpoint-down", "", now=False)]
    assert f"endpoint-down of {address(0)}:" in tell(site.sim.node, site.sim.log)[1]
    (site.folder / "60-more").unlink()
    assert tell(site.sim.node, site.sim.log) == (None, "") and site.told() == []
    assert not list(Path(site.sim.paths.state, "underlay").glob("told-*.json"))


def test_one_that_is_put_beside_others_later_is_told_all(site: Site) -> None:
    site.knows(endpoint(0), endpoint(1))
    assert len(site.told()) == 2
    site.script(SCRIPT, "60-more")
    assert site.told() == [expected(0, "endpoint-up"), expected(1, "endpoint-up")] and site.told() == []


def test_what_an_earlier_version_has_kept_was_told_to_all(site: Site) -> None:
    site.script(SCRIPT, "60-more")
    site.knows(endpoint(0))
    assert len(site.told()) == 2
    (kept,) = Path(site.sim.paths.state, "underlay").glob("told-*.json")
    stored = json.loads(kept.read_text())
    for each in stored["endpoints"]:
        del each["scripts"]
    kept.write_text(json.dumps(stored))
    assert site.told() == []
    site.knows()
    assert site.told() == [expected(0, "endpoint-down", "", now=False)] * 2


def failing(monkeypatch: pytest.MonkeyPatch, begins: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """Let nothing be begun but what ``begins`` of a context and an address; give the list of what was tried."""
    tried: list[tuple[str, str]] = []

    def execute(argv: Sequence[str], *given: Any) -> Outcome:
        tried.append((argv[2], argv[1]))
        return run(argv, *given) if begins(argv[2], argv[1]) else Outcome(error="Resource temporarily unavailable")

    monkeypatch.setattr("netcommon.process.run.run", execute)
    return tried


def test_a_guest_is_told_after_the_one_that_had_its_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell that the guest before has gone, then that the other one has come, though the first could not be begun at once."""
    site.knows(endpoint(0))
    assert site.told() == [expected(0, "endpoint-up")]
    site.knows(endpoint(0, instance="other", name="other.console.example"))
    failing(monkeypatch, lambda context, _address: context != "endpoint-down")
    unwritten, problem = tell(site.sim.node, site.sim.log)
    assert unwritten is None and "Resource temporarily unavailable" in problem and site.told() == []
    monkeypatch.undo()
    assert [line.split()[1:3] for line in site.told()] == [["endpoint-down", "web0"], ["endpoint-up", "other"]]
    assert site.told() == []


def test_one_that_can_be_begun_for_nobody_is_not_tried_for_each(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try it for three endpoints each time, though there are a hundred; one that fails now and then is tried for all."""
    site.knows(*map(endpoint, range(100)))
    tried = failing(monkeypatch, lambda _context, _address: False)
    assert site.told() == [] and len(tried) == 3
    left = {address(number) for number in range(0, 100, 3)}
    tried = failing(monkeypatch, lambda _context, address: address not in left)
    assert len(site.told()) == 66 and len(tried) == 100
    monkeypatch.undo()
    assert {line.split()[0] for line in site.told()} == left
