"""Refuse what a browser asks for another site's page, whatever it asks; and it changes nothing for anybody."""

from __future__ import annotations

import pytest

from netregistry.refusal import Refused
from netregistry.service.cross_site import Asked, check
from tests.support.service import Served

LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
OWN = {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}

#: What is asked, and whether it is let in over the socket.
ASKED = {
    "a program": ("POST", {"Host": "localhost"}, True),
    "a program of HTTP/1.0": ("POST", {}, True),
    "our client": ("DELETE", {"Host": "localhost", "Netcommon-Role": "operator:ann"}, True),
    "a forwarded port": ("GET", {"Host": "127.0.0.1:8080"}, True),
    "a forwarded port of IPv6": ("GET", {"Host": "[::1]:8080"}, True),
    "IPv6 without a port": ("GET", {"Host": "[::1]"}, True),
    "capitals": ("GET", {"Host": "LocalHost:8080"}, True),
    "typed by somebody": ("GET", {"Host": "localhost:8080", "Sec-Fetch-Site": "none"}, True),
    "our script": ("GET", OWN, True),
    "a link elsewhere to a page": ("GET", {"Host": "localhost:8080", **LINK}, True),
    "another name, which leads here": ("GET", {"Host": "evil.example:8080"}, False),
    "another name with our beginning": ("GET", {"Host": "localhost.evil.example"}, False),
    "another name with our end": ("GET", {"Host": "evil-localhost"}, False),
    "a port that is none": ("GET", {"Host": "localhost:8080@evil.example"}, False),
    "another name's script": ("GET", {**OWN, "Host": "evil.example:8080", "Origin": "http://evil.example:8080"}, False),
    "a link elsewhere in a frame": ("GET", {"Host": "localhost:8080", **LINK, "Sec-Fetch-Dest": "iframe"}, False),
    "an image of a page elsewhere": ("GET", {"Host": "localhost:8080", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
    "a page of another port": ("GET", {"Host": "localhost:8080", "Sec-Fetch-Site": "same-site"}, False),
    "a script of another port": ("GET", {"Host": "localhost:8080", "Origin": "http://localhost:3000"}, False),
    "a form elsewhere": ("POST", {"Host": "localhost:8080", "Origin": "https://evil.example", **LINK}, False),
    "a form of a page in a sandbox": ("POST", {"Host": "localhost:8080", "Origin": "null"}, False),
    "an older browser's form elsewhere": ("POST", {"Host": "localhost:8080", "Origin": "https://evil.example"}, False),
    "a change by our own page": ("POST", OWN, False),
    "a deletion by our own page": ("DELETE", OWN, False),
    "asking first (CORS)": ("OPTIONS", {"Host": "localhost:8080", "Origin": "https://evil.example"}, False),
}


@pytest.mark.parametrize(("method", "headers", "let_in"), ASKED.values(), ids=ASKED)
def test_who_is_let_in(service: Served, method: str, headers: dict[str, str], let_in: bool) -> None:
    """By the rule, and by the service, of which a page is asked, or what would change the most without a body."""
    allowed = True
    try:
        check(Asked(method, headers, secured=False, page=method == "GET"))
    except Refused as refused:
        allowed = (refused.code, refused.more["reason"]) != (403, "cross-site")
    assert allowed is let_in
    if "Host" not in headers:
        return  # HTTP/1.1 has no request without
    target = "/nics" if method == "GET" else "/v1/compact"
    said = service.say(method, target, None, **{name.replace("-", "_"): text for name, text in headers.items()})
    assert (said.status != 403) is let_in, said
    if not let_in:
        (line,) = [line for line in service.say("GET", "/metrics").body.decode().splitlines() if 'reason="cross-site"' in line]
        assert int(line.split()[-1]) == 1


@pytest.mark.parametrize("target", ["/v1/nics", "/v1/backup", "/v1/watch?node=x", "/metrics"])
def test_no_link_elsewhere_leads_to_more_than_a_page(service: Served, target: str) -> None:
    headers = {name.replace("-", "_"): text for name, text in LINK.items()}
    assert service.say("GET", target, None, **headers).status == 403


def test_by_tls_the_certificate_says_the_name() -> None:
    """So any name may be asked for; what another site's page asks for is refused all the same."""
    host = {"Host": "registry.example.com:8931"}
    check(Asked("POST", host, secured=True, page=False))
    check(Asked("GET", {**host, "Origin": "https://registry.example.com:8931", "Sec-Fetch-Site": "same-origin"}, secured=True, page=True))
    for more in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://registry.example.com:8931"}):
        with pytest.raises(Refused):
            check(Asked("GET", {**host, **more}, secured=True, page=True))
