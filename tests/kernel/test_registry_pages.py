"""The registry's pages in a real browser, which reaches the service's UNIX socket as by ssh -L: what is seen, and what is not done.

The tests' namespace has no network but its loopback. Pictures of what is seen lie in the cache, in results/pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netregistry.stores.base import Unavailable
from tests.support import bootstrap
from tests.support.browser import Browser, Forward, Page, browser, forwarded
from tests.support.pages import HOSTILE, hostile, seen
from tests.support.registry import NODES
from tests.support.service import Served, served

pytestmark = [pytest.mark.kernel, pytest.mark.no_agent("is about no hook")]
#: A script in a page: an attribute of what is placed there, text that is written there, and one that is elsewhere.
PLACED = "const made = document.createElement('button'); made.setAttribute('onclick', 'ran = 1'); document.body.append(made); made.click();"
WRITTEN = "document.body.innerHTML = '<img src=x onerror=ran=1>';"
ASKED = (
    "document.addEventListener('securitypolicyviolation', () => (window.refused = (window.refused || 0) + 1)); const image = new Image();"
)
ASKED += "image.src = 'http://127.0.0.2/x.png'; document.body.append(image); fetch('http://127.0.0.2/').catch(() => 0);"
LIVE = "document.getElementById('live').textContent"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def port(service: Served) -> Iterator[Forward]:
    with forwarded(f"{Path(service.path).parent}/pages") as found:
        yield found


@pytest.fixture
def page(chromium: Browser, port: Forward) -> Iterator[Page]:
    """Give a page of the browser, which has asked nobody else at the end, and has nothing to complain of."""
    found = chromium.page()
    yield found
    elsewhere = [url for url in found.requests if not url.startswith((f"http://localhost:{port.port}/", "about:blank"))]
    complaints = found.complaints
    found.close()
    assert elsewhere == [] and complaints == []


@pytest.fixture(scope="module")
def pictures() -> Path:
    folder = bootstrap.cache() / "results/pages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def filled(service: Served) -> dict[str, str]:
    """Give UUIDs of a network, one of its NICs, which a node has, and that node."""
    client = service.client()
    subnets = {"subnet": "192.0.2.0/26", "subnet6": "2001:db8::/64", "gateway": "192.0.2.1"}
    blue = client.change("POST", "networks", {"name": "blue", **subnets}).body["uuid"]
    client.change("POST", "networks", {"name": "green", "subnet": "198.51.100.0/24", "vlan": 12})
    nics = [
        client.change("POST", "nics", {"network": blue, "instance": f"web{number}", "index": 0, "allocate": ["ipv4", "ipv6"]}).body
        for number in range(1, 41)
    ]
    node = service.join(0)
    node.change("POST", f"nodes/{NODES[0]}/heartbeat", {"incarnation": nics[0]["uuid"]})
    reports = [
        {"nic": nic["uuid"], "state": "running", "tap": f"tap{number}", "mac": nic["mac"], "ip": nic["ip"]}
        for number, nic in enumerate(nics[:30])
    ]
    node.change("POST", f"nodes/{NODES[0]}/reports", {"after": "first:0", "nics": reports, "about": {"version": "1.2", "bridges": ["br0"]}})
    return {"network": blue, "nic": nics[6]["uuid"], "node": NODES[0]}


def go(page: Page, port: Forward, path: str) -> None:
    page.go(f"http://localhost:{port.port}{path}")


def test_what_is_seen(page: Page, port: Forward, filled: dict[str, str], pictures: Path) -> None:
    paths = {"overview": "/", "nics": "/nics", "nodes": "/nodes", "networks": "/networks", "history": "/history", "conflicts": "/conflicts"}
    paths |= {"nic": f"/nics/{filled['nic']}", "network": f"/networks/{filled['network']}", "node": f"/nodes/{filled['node']}"}
    for name, path in paths.items():
        go(page, port, path)
        page.until(f"{LIVE} === 'Live'")
        page.picture(pictures / f"{name}.png", 700)
        assert page.run("document.styleSheets.length") == 1 and "Search" in page.text
        assert page.run("getComputedStyle(document.querySelector('header')).display") == "flex", "the style sheet is in force"
    page.darken()
    go(page, port, "/nics")
    page.picture(pictures / "dark.png", 500)
    rows = page.run("[...document.querySelectorAll('tbody tr')].map(each => each.innerText)")
    assert len(rows) == 40 and rows[0].split()[:4] == ["web1/0", "running", "node0", "blue"] and rows[9].startswith("web10/0")
    page.run("document.querySelector('tbody tr a').click()")
    page.until("document.querySelector('h1')?.innerText.startsWith('NIC web1/0')")
    page.until("document.getElementById('main').innerText.includes('tap0')")
    assert "tap0" in page.text


def test_something_is_found_while_it_is_typed(page: Page, port: Forward, filled: dict[str, str], pictures: Path) -> None:
    go(page, port, "/networks")
    page.run("document.getElementById('text').focus()")
    page.type("web7")
    found = "[...document.querySelectorAll('#found a')].map(each => each.innerText)"
    page.until(f"{found}[0] === 'web7/0'")
    page.picture(pictures / "search.png", 500)
    assert page.run("document.activeElement.id") == "text" and page.run("document.querySelector('h1').innerText") == "Networks"
    page.type("x")
    page.until("document.getElementById('found').innerText.startsWith('Nothing has web7x')")
    page.run("document.getElementById('text').value = ''")
    page.type("02:6e")
    page.until(f"{found}.length === 30")
    page.run("document.querySelector('#found a').click()")
    page.until("document.querySelector('h1')?.innerText.startsWith('NIC ')")


def test_a_change_is_seen_without_anything_being_done(
    page: Page, port: Forward, service: Served, filled: dict[str, str], pictures: Path
) -> None:
    go(page, port, f"/nics/{filled['nic']}")
    page.until(f"{LIVE} === 'Live'")
    page.run("window.same = true")
    service.client().change("PATCH", f"nics/{filled['nic']}", {"owner": "ann", "options": [{"name": "rate_in", "value": "8mbit"}]})
    page.until("document.getElementById('main').innerText.includes('8mbit')", 10)
    page.picture(pictures / "changed.png", 800)
    service.client().change("DELETE", f"nics/{filled['nic']}")
    page.until("document.querySelector('h1')?.innerText.startsWith('404')", 10)
    assert page.run("window.same") is True, "it is the same page all the time"
    assert [text for text in page.complaints if "404" not in text] == []
    page.events("Log.entryAdded")
    page.forget()


def test_a_page_that_is_cut_off_says_so_and_comes_back(
    page: Page, port: Forward, service: Served, filled: dict[str, str], pictures: Path
) -> None:
    go(page, port, "/networks")
    page.until(f"{LIVE} === 'Live'")
    port.cut()
    page.until(f"{LIVE}.startsWith('Not live since ')")
    page.picture(pictures / "cut-off.png", 400)
    service.client().change("POST", "networks", {"name": "red"})
    assert "red" not in page.text
    port.mend()
    page.until(f"{LIVE} === 'Live' && document.getElementById('main').innerText.includes('red')")
    assert all("ERR_" in text for text in page.complaints), page.complaints
    page.forget()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_text(
    page: Page, port: Forward, service: Served, pictures: Path, text: str, request: pytest.FixtureRequest
) -> None:
    """Nothing of them runs, opens a dialog, or is asked for, also where they are put into the page by its script."""
    name = request.node.callspec.id.replace(" ", "-")
    for number, path in enumerate(hostile(service, text)):
        go(page, port, path)
        assert page.run("document.querySelectorAll('main script, main img, main iframe, main style, main svg').length") == 0
        if number == 1:
            page.picture(pictures / f"hostile-{name}.png", 300)
            assert seen(text) in " ".join(page.text.split())
        elif number == 6:
            page.until(f"{LIVE} === 'Live'")
            service.client().change("POST", "networks", {"name": "x"})
    page.run("document.getElementById('text').focus()")
    page.call("Input.insertText", text=text.replace("\ud800", "").replace("\x00", ""))
    page.until("!document.getElementById('found').hidden || !document.getElementById('text').value.trim()")
    assert page.run("document.querySelectorAll('#found script, #found img').length") == 0
    assert page.run("window.alert.toString().includes('native code')") and "49" not in page.text.split()
    assert [each for each in page.complaints if "status of 40" not in each] == []
    page.forget()


def test_no_script_that_is_not_ours_runs(page: Page, port: Forward, filled: dict[str, str]) -> None:
    """Even where one got into a page: the policy holds in this browser."""
    go(page, port, "/nics")
    page.run("window.ran = 0")
    for script in (PLACED, WRITTEN, ASKED):
        page.run(f"(() => {{ try {{ {script} }} catch (error) {{ }} }})()")
    page.until("window.refused === 2")
    assert page.run("window.ran") == 0
    complaints = " ".join(page.complaints)
    assert "TrustedScript" in complaints and "TrustedHTML" in complaints and "Content Security Policy" in complaints
    page.forget()


def test_a_page_of_another_site_gets_nothing(page: Page, service: Served, filled: dict[str, str]) -> None:
    """Neither an answer, nor a change, nor a frame; here of the socket by which root may do anything."""
    before = service.everything()
    page.call("Page.setBypassCSP", enabled=True)  # another site has no such policy
    counts = service.service.figures.away.counts
    with forwarded(service.path) as all_of_it, forwarded(service.path) as other:
        site = f"http://localhost:{all_of_it.port}"
        go(page, other, "/nics")  # another port is another site's: same-site, but not same-origin
        for number, given in enumerate(("{mode: 'no-cors'}", "{}", "{method: 'POST', mode: 'no-cors'}", "{method: 'DELETE'}")):
            target = "/v1/compact" if "POST" in given else "/v1/nics"
            page.run(f"fetch('{site}{target}', {given}).catch(() => 0).then(() => 0)")
            assert counts["cross-site"] == number + 1, given
        page.run(f"(() => {{ const made = document.createElement('iframe'); made.src = '{site}/nics'; document.body.append(made); }})()")
        page.until("document.querySelector('iframe').contentDocument === null")
        service.until(lambda: counts["cross-site"] == 5)
        page.go("about:blank")
    assert service.everything() == before
    page.forget()


def test_a_name_that_is_made_to_lead_here_gets_nothing(page: Page, port: Forward, service: Served, filled: dict[str, str]) -> None:
    """DNS rebinding: to the browser that site is one with us, and its scripts read what is answered."""
    page.call("Page.setBypassCSP", enabled=True)
    with forwarded(service.path) as all_of_it:
        for number in (port.port, all_of_it.port):
            page.go(f"http://evil.example:{number}/nics")
            assert "web1/0" not in page.text and "403" in page.text
            for target in ("/nics", "/v1/nics", "/v1/backup"):
                asked = page.run(f"fetch('{target}').then(said => said.text().then(text => [said.status, text]))")
                assert asked[0] == 403 and "web1" not in asked[1]
        assert page.run("fetch('/v1/compact', {method: 'POST'}).then(said => said.status)") == 403
        page.go("about:blank")
    page.forget()


def test_a_store_that_does_not_answer_is_said_on_the_open_page(
    page: Page, port: Forward, service: Served, filled: dict[str, str], pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: object) -> None:
        raise Unavailable("no majority answers")

    go(page, port, "/networks")
    page.until(f"{LIVE} === 'Live'")
    with monkeypatch.context() as patched:
        patched.setattr(service.service.registry.local, "catch_up", away)
        page.until(f"{LIVE}.startsWith('The store has not answered for ')")
        go(page, port, "/networks")
        page.until("document.getElementById('main').innerText.includes('The store has not answered for ')")
        page.picture(pictures / "age.png", 300)
    page.until(f"{LIVE} === 'Live'")
    page.until("!document.getElementById('main').innerText.includes('The store has not answered')", 10)
