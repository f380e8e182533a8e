"""Read what a page of the registry says, as a browser does; and a registry of which every part is hostile."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import quote

from netregistry.model.claim import Claim
from netregistry.model.codec import dump
from netregistry.model.history import Change, Entry, Identity
from netregistry.model.network import Network
from netregistry.model.nic import Nic, Option, Report
from netregistry.model.node import About, Interface, Node, Reports
from netregistry.request import new_id
from netregistry.stores.base import Put
from tests.support.registry import NODES
from tests.support.service import Served

#: All that pages consist of. Whatever else is in one came from what it shows.
TAGS = frozenset(
    (
        *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "a", "form", "input"),
        *("button", "div", "p", "main", "h1", "h2", "h3", "bdi", "table", "thead", "tbody", "tr"),
        *("th", "td", "ul", "li", "b", "small", "span", "dl", "dt", "dd", "em", "br"),
        *("meter", "footer"),
    )
)
ATTRIBUTES = frozenset(
    (
        *("lang", "charset", "name", "content", "rel", "href", "src", "defer", "action", "role", "id", "type"),
        *(
            "autocomplete",
            "spellcheck",
            "maxlength",
            "aria-label",
            "placeholder",
            "value",
            "aria-live",
            "aria-current",
            "hidden",
            "class",
            "data-live",
            "data-revision",
        ),
        *("data-lost", "data-age", "min", "max", "high"),
    )
)
#: What begins on a line, or in a place, of its own.
BLOCKS = frozenset(("td", "th", "tr", "dt", "dd", "li", "div", "p", "h1", "h2", "h3", "br"))
#: Values that would be something else than text if they were not escaped, by what they would be; each is a name's 255 bytes at most.
HOSTILE = {
    "element": "<script>alert(1)</script>",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "entity": "&lt;b&gt; &amp;",
    "template": "{{ 7*7 }}{% raw %}${alert(1)}",
    "comment": "--><!--]]></title></bdi></table>",
    "address": "javascript:alert(1)//http://elsewhere.example/?a=b&c=d#e",
    "control": "a\x00b\x07c\x1b[31md\r\ne\x7ff\x9b",
    "direction": "abc\u202etxt.exe\u2066\u200f\ufeff",
    "right to left": "\u05d0\u05d1\u05d2 1 \u0645\u0631\u062d\u0628\u0627",
    "long": "<" * 255,
    "wide": "\u20ac" * 85,
    "surrogate": "a\ud800b",
    "spaces": "   ",
}


class Page(NamedTuple):
    """A page: all of its text, where its links lead to, and its elements and their attributes."""

    text: str
    links: tuple[str, ...]
    tags: frozenset[str]
    attributes: frozenset[str]
    live: str


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.live = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in BLOCKS:
            self.words.append(" ")
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src", "action"):
                self.links.append(value or "")
            elif name == "data-live":
                self.live = value or ""

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.add("comment")


def page(body: bytes) -> Page:
    """Read a page."""
    reader = _Reader()
    reader.feed(body.decode())
    reader.close()
    return Page(
        " ".join("".join(reader.words).split()), tuple(reader.links), frozenset(reader.tags), frozenset(reader.attributes), reader.live
    )


def seen(text: str) -> str:
    """Give how somebody reads a value of HOSTILE, by no code of the pages'."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return " ".join(shown.split())


def uuid(kind: int, number: int = 0) -> str:
    return f"{number:08x}-{kind:04x}-4000-8000-000000000000"


def hostile(service: Served, text: str) -> tuple[str, ...]:
    """Write a registry straight into the store in which everything is called ``text``; give the paths of all pages about it."""
    network, node, nic, twin, request = uuid(1), NODES[0], uuid(3), uuid(3, 1), new_id(1_790_000_000.0, 5)
    wanted = Nic(nic, text, text, "instance", text, 0, text, text, text, network, text, (text,), "bridged", text, text, text, (text,))
    wanted = wanted._replace(options=(Option(text, text),), made=1.0)
    about = About(text, (text,), (Interface(node, text, text, True, (text,)),), (text,), (text,), (text,), (5,), (text,))
    report = Report(
        nic, "running", text, text, text, (text,), (text,), "", text, text, text, (Option(text, text),), text, text, (text,), 1.0
    )
    entry = Entry(
        1,
        request,
        1_790_000_000.0,
        Identity("operator", text, text),
        text,
        f"nics/{nic}",
        (Change(f"nics/{nic}", {"name": text}, {"name": f"{text}2", text: text}), Change(f"nics/{twin}", {"instance": text}, None)),
        200,
    )
    values = {
        f"networks/{network}": Network(network, text, text, text, "192.0.2.0/24", tag=text, owners=(text,), tags=(text,)),
        f"nodes/{node}": Node(node, text, text, "physical", (text,), 1.0),
        f"nics/{nic}": wanted,
        f"seen/{node}/{nic}": report,
        f"reports/{node}": Reports(request, "first", 1.0, about),
        f"macs/{network}/aa:00:00:00:00:01": Claim(nic, (twin,)),
        f"macs/{network}/aa:00:00:00:00:02": Claim(reserved=text, last=nic),
        f"history/{request}": entry,
    }
    service.store.commit([], [*(Put(key, dump(value)) for key, value in values.items()), Put(f"nics/{twin}", b"{")])
    paths = ["/", "/nics", "/nodes", "/networks", "/conflicts", "/history", f"/nics/{nic}", f"/nodes/{node}", f"/networks/{network}"]
    typed = quote(text.encode("utf-8", "surrogatepass"), safe="")
    return (*paths, f"/nics/{nic}/history", f"/nics?instance={typed}", f"/find?text={typed}", f"/nics/{typed}", f"/{typed}")
