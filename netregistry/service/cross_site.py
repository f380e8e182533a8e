"""Turn away what a browser asks on behalf of somebody else's page, and whatever is more than looking.

Whoever lets a browser reach the UNIX socket (ssh -L) or has a client certificate in it lends every page that is open in it that right. So
a request that a page of another site has made is refused: a browser says of which site it is (Fetch Metadata, Sec-Fetch-Site; RFC 6454,
Origin). A site whose name leads to this machine (DNS rebinding) is no other site to the browser, and says nothing of the two, so over the
socket the name that was asked for counts as well; by TLS the service's certificate has none but its own names. No page of ours changes
anything, so no browser does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names that no other site has (RFC 6761, 6.3), with or without a port.
OWN = ("localhost", "127.0.0.1", "[::1]")
#: What browsers alone send, and no script of a page can leave out or change ("forbidden request-headers" of the Fetch standard).
MARKS = ("Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Origin")
REASON = "cross-site"


class Asked(NamedTuple):
    """Hold what decides whether a request is let in. ``secured``: it came by TLS; ``page``: it asks for a page, which changes nothing."""

    method: str
    headers: Mapping[str, str]
    secured: bool
    page: bool


def check(asked: Asked) -> None:
    """Raise Refused for a request that another site's page has made, and for one of a browser that would change something."""
    headers = asked.headers
    host = headers.get("Host", "")
    if not asked.secured and host and _name(host) not in OWN:
        detail = f"the socket is asked under the name localhost, not {host!a:.80}: another site's page may have asked"
        raise Refused("forbidden", detail, reason=REASON)
    origin = headers.get("Origin")
    if origin is not None and origin != f"{'https' if asked.secured else 'http'}://{host}":
        raise Refused("forbidden", f"a page of {origin!a:.80} has asked, which is another site", reason=REASON)
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in ("none", "same-origin") and not (asked.page and _followed(asked)):
        raise Refused("forbidden", "a page of another site has asked", reason=REASON)
    if asked.method != "GET" and any(name in headers for name in MARKS):
        raise Refused("forbidden", "a browser changes nothing: netcommon registry does", reason=REASON)


def _name(host: str) -> str:
    """Give the name of a Host header (RFC 9110, 7.2) without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isascii() and port.isdecimal() else host).lower()


def _followed(asked: Asked) -> bool:
    """Tell whether somebody has followed a link to a page, in a window of its own: the site with the link learns nothing of it."""
    headers = asked.headers
    return asked.method == "GET" and headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
