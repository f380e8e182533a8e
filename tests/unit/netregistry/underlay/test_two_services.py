"""Run two services over one store: a step of one rests on what all nodes have said, also to the other one a moment before."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from tests.support.registry import NODES, Registry
from tests.support.underlay import Site

AT_0 = {"web1.console": 0}


class Two(Site):
    """Make a site whose first service has not heard yet what nodes tell the ``other`` one."""

    def __init__(self) -> None:
        super().__init__()
        self.web = self.guest("web1")
        self.says(0, self.web, "running")
        self.confirms(0)
        self.other = Registry(self.store, seed=99)
        self.other.time = self.time

    def tells_other(self, number: int, state: str) -> None:
        """Let a node report the guest's NIC at the other service; "": not any more."""
        nics = [{"nic": self.web, "state": state, "endpoints": ["console"]}] if state else []
        assert self.other.report(self.who[number], *nics, removed=() if state else (self.web,)).status == 200

    def tells_this(self, number: int, state: str) -> None:
        """Let a node report it at this one, which does not catch up before."""
        nics = [{"nic": self.web, "state": state, "endpoints": ["console"]}] if state else []
        after = self.local.view.shown_revision(keys.reports(NODES[number]))
        response = self.ask("report", "", {"after": after, "nics": nics, "removed": [] if state else [self.web]}, self.who[number])
        assert response.status == 200, response
        self.local.catch_up()


@pytest.fixture
def site() -> Two:
    return Two()


def test_a_guest_that_is_gone_here_and_runs_there_keeps_its_name(site: Two) -> None:
    """Keep the name of a guest that is gone here and runs there: nobody announced that it comes, so the first word changes no endpoint."""
    site.tells_other(1, "running")
    site.tells_this(0, "")
    assert site.names() == AT_0
    site.confirms(1)
    site.passes(1)
    assert site.names() == {"web1.console": 1}


def test_a_guest_that_is_back_at_its_node_and_does_not_come_any_more_keeps_its_name(site: Two) -> None:
    """Keep the name of a guest whose migration failed after its source took it for done: the source has the guest again."""
    site.says(1, site.web, "incoming")
    site.says(0, site.web, "")
    site.other.local.catch_up()
    site.tells_other(0, "running")
    site.tells_this(1, "")
    assert site.names() == AT_0


def test_a_report_that_says_no_other_state_writes_no_placement(site: Two) -> None:
    key = keys.placement("", "web1")
    before = site.local.view.at(key)
    site.says(0, site.web, "running", tap="tap7")
    assert site.local.view.at(key) == before
    site.says(0, site.web, "stopped")
    assert site.local.view.at(key) != before, "steps that are taken without this word fail"
