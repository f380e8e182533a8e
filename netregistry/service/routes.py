"""List every endpoint once: what is routed, checked and documented is made of this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from netregistry import exchange
from netregistry.actions import ACTIONS
from netregistry.model import kinds
from netregistry.model.certificate import Authority, Holder, Token
from netregistry.model.claim import Claim
from netregistry.model.codec import Between, describe, schema
from netregistry.model.history import Settings
from netregistry.model.importing import Import
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from netregistry.model.underlay import Kinds, There, Underlay
from netregistry.rules.reports import Reporting
from netregistry.service import answers, filters
from netregistry.service.filters import PAGING, Param
from netregistry.service.issuing import Join, NewAuthority
from netregistry.stream import Line

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]

DRY = Param("dry_run", bool, "answer what would change, and change nothing")
FORCE = Param("force", bool, "also where its master is gone for good, the node is alive, or somebody would be out")
FORCED = ("network.delete", "nic.delete", "node.forget", "node.fence", "authority.retire")
BODILESS = (*FORCED, "certificate.renew")
JSON, LINES, TEXT, BINARY = "application/json", "application/x-ndjson", "text/plain", "application/vnd.sqlite3"


class Route(NamedTuple):
    """One endpoint. ``path``: with {NAME} for its variable parts; ``action``: the core's, "" for what only looks."""

    method: str
    path: str
    name: str
    about: str
    status: int
    answer: Callable[[], Schema] | None  #: schema of the body of an answer that is no refusal
    query: tuple[Param, ...] = ()
    body: Callable[[], Schema] | None = None
    action: str = ""
    match: bool = False  #: it changes something that exists: If-Match says at which revision that was read
    media: str = JSON


def _page(item: type) -> Callable[[], Schema]:
    def made() -> Schema:
        found = schema(answers.Page)
        found["properties"]["items"] = {"type": "array", "items": schema(item)}
        return found

    return made


def _reports() -> Schema:
    found = _page(answers.ReportItem)()
    found["properties"]["items"]["items"]["properties"]["report"]["properties"]["endpoints"] = describe(Kinds)
    return found


def _node() -> Schema:
    found = schema(answers.NodeItem)
    found["properties"]["underlay"] = schema(There)
    return found


def _nodes() -> Schema:
    found = _page(answers.NodeItem)()
    found["properties"]["items"]["items"] = _node()
    return found


def _of(made: type) -> Callable[[], Schema]:
    return lambda: schema(made)


def _body(action: str) -> Callable[[], Schema]:
    return {"certificate.join": _of(Join), "authority.add": _of(NewAuthority)}.get(action, ACTIONS[action].body)


def _token() -> Schema:
    return schema(Token, tuple(name for name in Token._fields if name != "proof"), ())


def _batch() -> Schema:
    part = {"action": {"enum": sorted(ACTIONS)}, "target": {"type": "string"}, "body": {}, "match": {"type": "string"}}
    one = {"type": "object", "properties": part, "required": ["action"], "additionalProperties": False}
    parts = {"type": "array", "items": one, "minItems": 1, "maxItems": 50}
    return {"type": "object", "properties": {"parts": parts}, "required": ["parts"], "additionalProperties": False}


def _reporting() -> Schema:
    found = schema(Reporting)
    found["properties"]["nics"]["items"]["properties"]["endpoints"] = describe(Kinds)
    return found


def _anything() -> Schema:
    return {}


def _settings() -> Schema:
    return {"type": "object", "properties": {"revision": {"type": "string"}, "settings": schema(Settings)}, "required": ["settings"]}


def _forgotten() -> Schema:
    nics = {"type": "array", "items": {"type": "string"}}
    return {"type": "object", "properties": {"node": schema(Node), "nics": nics}, "required": ["node", "nics"]}


def _fenced() -> Schema:
    found = _forgotten()
    found["properties"]["left"] = {"type": "integer", "description": "reports that are left: ask again"}
    return found


def _held() -> Schema:
    found = schema(Import)
    found["properties"]["left"] = {"type": "integer", "description": "things that are to be renamed still: ask again"}
    return found


def _change(method: str, path: str, action: str, about: str, status: int, answer: Callable[[], Schema] | None, match: bool) -> Route:
    query = (DRY, FORCE) if action in FORCED else (DRY,)
    body = None if method == "DELETE" or action in BODILESS else _body(action)  # a deletion with a body is nobody's custom
    return Route(method, path, action, about, status, answer, query, body, action, match)


def _list(path: str, name: str, about: str, item: type, query: tuple[Param, ...]) -> Route:
    return Route("GET", path, name, about, 200, _page(item), (*query, *PAGING))


def _params(known: tuple[filters.Filter, ...]) -> tuple[Param, ...]:
    return tuple(each.param for each in known)


WATCH = (
    Param("node", kinds.Uuid, "the node that it concerns", required=True),
    Param("from", kinds.Name, 'EPOCH:REVISION of the last "ready" that was read: go on behind it'),
    Param("incarnation", kinds.Uuid, "of a node's agent, made at each start: the open stream is the node's sign of life"),
    Param("underlay", Annotated[int, Between(0, 1)], "1: tell what the node is to have of the underlay, too"),
)
FIND = (Param("text", kinds.Name, "any part of a name, MAC, address or UUID", required=True), PAGING[0])

ROUTES = (
    Route("GET", "/v1", "abilities", "Say what this service can do.", 200, _of(answers.Abilities)),
    Route("GET", "/v1/openapi.json", "openapi", "Give this document.", 200, _anything),
    Route("GET", "/v1/problems/{kind}", "problem", "Say what a kind of problem is.", 200, _of(answers.Problem)),
    Route("GET", "/v1/status", "status", "Say how the service is.", 200, _of(answers.Status)),
    _list("/v1/networks", "networks", "List networks.", answers.NetworkItem, _params(filters.NETWORKS)),
    _change("POST", "/v1/networks", "network.add", "Make a network.", 201, _of(Network), False),
    Route("GET", "/v1/networks/{uuid}", "network", "Show a network.", 200, _of(answers.NetworkItem)),
    _change("PATCH", "/v1/networks/{uuid}", "network.set", "Change fields of a network.", 200, _of(Network), True),
    _change("DELETE", "/v1/networks/{uuid}", "network.delete", "Delete a network that no NIC is in.", 200, _of(Network), True),
    _list("/v1/nics", "nics", "List NICs.", answers.NicItem, _params(filters.NICS)),
    _change("POST", "/v1/nics", "nic.add", "Make a NIC; what `allocate` names is given out.", 201, _of(Nic), False),
    Route("GET", "/v1/nics/{uuid}", "nic", "Show a NIC.", 200, _of(answers.NicItem)),
    _change("PATCH", "/v1/nics/{uuid}", "nic.set", "Change fields of a NIC.", 200, _of(Nic), True),
    _change("DELETE", "/v1/nics/{uuid}", "nic.delete", "Delete a NIC, and free what it has.", 200, _of(Nic), True),
    Route("GET", "/v1/nodes", "nodes", "List nodes.", 200, _nodes, (*_params(filters.NODES), *PAGING)),
    _change("POST", "/v1/nodes", "node.join", "Let a node join.", 201, _of(Node), False),
    Route("GET", "/v1/nodes/{uuid}", "node", "Show a node.", 200, _node),
    _change("PATCH", "/v1/nodes/{uuid}", "node.set", "Change what is said of a node.", 200, _of(Node), True),
    _change("DELETE", "/v1/nodes/{uuid}", "node.forget", "Forget a node.", 200, _forgotten, True),
    _change("POST", "/v1/nodes/{uuid}/fence", "node.fence", "Say that a node is off, and has no NIC any more.", 200, _fenced, True),
    Route("POST", "/v1/nodes/{uuid}/reports", "report", "Take in a node's reports.", 200, None, (), _reporting, "report"),
    Route(
        "POST",
        "/v1/nodes/{uuid}/heartbeat",
        "heartbeat",
        "Take a node's sign of life.",
        200,
        _of(answers.Alive),
        (),
        _of(answers.Heartbeat),
    ),
    Route("GET", "/v1/reports", "reports", "List what nodes say of NICs.", 200, _reports, (*_params(filters.REPORTS), *PAGING)),
    _list("/v1/claims", "claims", "List MACs and addresses that were ever used.", answers.ClaimItem, _params(filters.CLAIMS)),
    _change("PUT", "/v1/claims/{kind}/{scope}/{what}", "claim.reserve", "Keep a MAC or an address.", 200, _of(Claim), False),
    _change("DELETE", "/v1/claims/{kind}/{scope}/{what}", "claim.release", "Let it be given out again.", 200, None, False),
    _list("/v1/conflicts", "conflicts", "List what more than one NIC wants.", answers.ConflictItem, ()),
    _list("/v1/imports", "imports", "List the Ganeti clusters that are imported.", answers.ImportItem, ()),
    _change("PUT", "/v1/imports/{cluster}", "importer.hold", "Say which configuration of a cluster is imported.", 200, _held, False),
    _list("/v1/authorities", "authorities", "List the authorities that count, the one that signs last.", answers.AuthorityItem, ()),
    _change("POST", "/v1/authorities", "authority.add", "Take in an authority: it signs from now on.", 201, _of(Authority), False),
    _change("DELETE", "/v1/authorities/{label}", "authority.retire", "Let it count no more.", 200, _of(Authority), False),
    _list("/v1/tokens", "tokens", "List tokens, without what they are known by.", answers.TokenItem, ()),
    _change("POST", "/v1/tokens", "token.add", "Make a token, of which the registry is told a hash.", 201, _token, False),
    _change("DELETE", "/v1/tokens/{label}", "token.revoke", "Take a token back.", 200, _token, False),
    _change("POST", "/v1/join", "certificate.join", "Join by a token: get a certificate.", 201, _of(answers.Issued), False),
    _list("/v1/certificates", "certificates", "List who has certificates.", answers.CertificateItem, ()),
    _change("POST", "/v1/certificates", "certificate.renew", "Get another certificate for the same key.", 200, _of(answers.Issued), False),
    _change("POST", "/v1/certificates/revoke", "certificate.revoke", "Revoke all certificates of one.", 200, _of(Holder), False),
    Route("GET", "/v1/underlay", "underlay", "Show the underlay, and how it is used.", 200, _of(answers.UnderlayItem)),
    _change("PUT", "/v1/underlay", "underlay.init", "Say which prefix nodes have a part of.", 200, _of(Underlay), False),
    _change(
        "DELETE",
        "/v1/underlay/quarantine/{label}",
        "underlay.release",
        "End the quarantine of an address or a prefix; wait for a zone of before no longer.",
        200,
        None,
        False,
    ),
    _list("/v1/prefixes", "prefixes", "List the prefixes of nodes, by number.", answers.PrefixItem, ()),
    _list("/v1/endpoints", "endpoints", "List where instances' endpoints are.", answers.PlacementItem, _params(filters.ENDPOINTS)),
    _list("/v1/names", "names", "List names, and where they lead.", answers.NameItem, _params(filters.NAMES)),
    Route("GET", "/v1/settings", "settings", "Show the registry's settings.", 200, _settings),
    _change("PATCH", "/v1/settings", "settings.set", "Change the registry's settings.", 200, _of(Settings), True),
    _list("/v1/history", "history", "List the requests that were done, the oldest first.", answers.HistoryItem, filters.HISTORY),
    Route("GET", "/v1/find", "find", "Find by any part of a name, MAC, address or UUID.", 200, _page(answers.FoundItem), FIND),
    Route("POST", "/v1/batch", "batch", "Do several requests together, or none.", 200, _anything, (DRY,), _batch, "batch"),
    Route("GET", "/v1/watch", "watch", "Tell a node what concerns it, as it changes.", 200, _of(Line), WATCH, media=LINES),
    Route("GET", "/v1/export", "export", "Give all that is wanted, as lines of JSON.", 200, _of(exchange.Line), media=LINES),
    Route("POST", "/v1/compact", "compact", "Forget what was overwritten, and make the file smaller.", 200, _of(answers.Compacted)),
    Route("GET", "/v1/backup", "backup", "Give a copy of the whole registry, an SQLite file.", 200, None, media=BINARY),
    Route("GET", "/healthz", "healthz", "Say whether the store can be read.", 200, None, media=TEXT),
    Route("GET", "/metrics", "metrics", "Give figures for Prometheus.", 200, None, media=TEXT),
)
