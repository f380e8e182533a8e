"""Find what somebody types, and the right thing first."""

from __future__ import annotations

from netregistry.pages.search import MOST, Found, found
from netregistry.service.filters import Sight
from netregistry.service.index import Index
from netregistry.service.states import States
from tests.support.registry import Registry


def search(registry: Registry, text: str) -> Found:
    view = registry.local.view
    return found(Sight(view, States(view)), Index(view), text)


def test_what_is_called_just_that_comes_first_however_many_have_it_in_their_names(registry: Registry) -> None:
    for number in range(60):
        registry.do("nic.add", "", {"instance": f"web1{number}", "index": 0, "cluster": "c"})
    wanted = registry.do("nic.add", "", {"instance": "web1", "index": 0, "cluster": "c"})
    registry.network("web1")
    shown = search(registry, "web1")
    assert [(hit.kind, hit.name) for hit in shown.hits[:2]] == [("networks", "web1"), ("nics", "web1/0")]
    assert len(shown.hits) == MOST and shown.more and len({hit.path for hit in shown.hits}) == MOST
    assert search(registry, "web1/0").hits[0].path == f"/nics/{wanted['uuid']}"


def test_macs_and_addresses_are_read_as_people_write_them(registry: Registry) -> None:
    blue = registry.network("blue", subnet6="2001:db8::/64")
    body = {"network": blue, "instance": "web1", "mac": "aa:00:00:12:34:56", "ip": "192.0.2.9", "addresses": ["2001:db8::9"]}
    nic = registry.do("nic.add", "", body)["uuid"]
    for typed in ("AA-00-00-12-34-56", "12-34", "12:34:56", "192.0.2.9", "2001:DB8:0:0::9", "db8::9", nic[:8].upper()):
        assert [hit.path for hit in search(registry, typed).hits] == [f"/nics/{nic}"], typed
    assert [hit.text for hit in search(registry, "12:34:5").hits] == ["aa:00:00:12:34:56"]
    assert search(registry, "nothing like it") == Found((), False) == search(registry, "  ")


def test_what_is_not_given_out_is_found_by_why(registry: Registry) -> None:
    blue = registry.network()
    registry.do("claim.reserve", f"addresses/{blue}/192.0.2.77", {"reason": "for the printer"})
    (hit,) = search(registry, "printer").hits
    assert (hit.kind, hit.name, hit.text, hit.path) == ("addresses", "192.0.2.77", "reserved: for the printer", "")
