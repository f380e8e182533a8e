"""Say who may ask what: one table, by the name of the endpoint or action, for the core, the service, its documents and the tests.

What somebody may ask may still be refused by what it is about: a node reports for itself alone, an importer writes what its cluster decides
(netregistry.rules.masters).
"""

from __future__ import annotations

from netregistry.refusal import Refused

#: Who has no certificate: it can join by a token, and learn what it needs for that.
NEWCOMER = "newcomer"
#: Who has a certificate.
HOLDERS = ("operator", "importer", "node", "reader")

EVERYBODY = frozenset((*HOLDERS, NEWCOMER))
ALL = frozenset(HOLDERS)
OPERATOR = frozenset(("operator",))
LOOKING = frozenset(("operator", "reader"))
IMPORTING = frozenset(("operator", "importer"))
IMPORTS_TOO = LOOKING | IMPORTING
WRITING = frozenset(("operator", "importer", "node"))
NODES = frozenset(("operator", "node"))
NODE = frozenset(("node",))
LEADER = frozenset(("leader",))

ROLES: dict[str, frozenset[str]] = {
    # looking
    "abilities": EVERYBODY,
    "openapi": ALL,
    "problem": EVERYBODY,
    "healthz": EVERYBODY,
    "authorities": EVERYBODY,
    "networks": ALL,
    "network": ALL,
    "nics": ALL,
    "nic": ALL,
    "nodes": ALL,
    "node": ALL,
    "reports": ALL,
    "claims": ALL,
    "conflicts": ALL,
    "find": ALL,
    "status": ALL,
    "underlay": ALL,
    "prefixes": ALL,
    "endpoints": ALL,
    "names": ALL,
    "imports": IMPORTS_TOO,
    "settings": LOOKING,
    "history": LOOKING,
    "export": LOOKING,
    "metrics": LOOKING,
    "certificates": LOOKING,
    "tokens": OPERATOR,
    "backup": OPERATOR,
    "watch": LOOKING | NODE,
    "pages": LOOKING,  # all of netregistry.pages
    # changing
    "network.add": IMPORTING,
    "network.set": IMPORTING,
    "network.delete": IMPORTING,
    "nic.add": WRITING,
    "nic.set": WRITING,
    "nic.delete": WRITING,
    "claim.reserve": OPERATOR,
    "claim.release": OPERATOR,
    "node.join": NODES,
    "node.set": NODES,
    "node.fence": OPERATOR,
    "node.forget": OPERATOR,
    "importer.hold": IMPORTING,
    "settings.set": OPERATOR,
    "underlay.init": OPERATOR,
    "underlay.release": OPERATOR,
    "batch": WRITING,
    "compact": OPERATOR,
    "report": NODE,
    "heartbeat": NODE,
    # certificates
    "token.add": OPERATOR,
    "token.revoke": OPERATOR,
    "certificate.join": frozenset((NEWCOMER,)),
    "certificate.renew": ALL,
    "certificate.revoke": OPERATOR,
    "authority.add": OPERATOR,
    "authority.retire": OPERATOR,
    # by time
    "options.end": LEADER,
    "quarantine.end": LEADER,
    "claims.sweep": LEADER,
    "certificates.sweep": LEADER,
    "underlay.settle": LEADER,
    "underlay.end": LEADER,
}


def check(what: str, role: str) -> None:
    """Raise Refused where a role may not ask something: an endpoint or action of the table."""
    roles = ROLES[what]
    if role in roles:
        return
    if role == NEWCOMER:
        detail = (
            "a certificate is needed for that: netcommon registry join URL TOKEN gets one, by a token of netcommon registry token create"
        )
        raise Refused("certificate", detail, reason="none")
    raise Refused("forbidden", f"{what} is for {' and '.join(sorted(roles))}", master=sorted(roles)[0])
