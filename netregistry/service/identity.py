"""Tell who asks: over the UNIX socket root as whom it says, from elsewhere who the certificate says."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

from netregistry.model import kinds
from netregistry.model.certificate import ISSUER, URN, Credential
from netregistry.model.codec import Invalid, read
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.roles import HOLDERS, NEWCOMER
from netregistry.rules.holders import named, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

UCRED = struct.Struct("3i")  #: pid, uid, gid: unix(7), SO_PEERCRED
ORIGIN = "unix"


def peer(connection: Any) -> int:
    """Give the user at the other end of a UNIX socket, by the kernel's word. Raises Refused where that is neither root nor ourselves."""
    _pid, uid, _gid = UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    if uid not in (0, os.geteuid()):
        raise Refused("forbidden", f"this socket is for root alone, and you are user {uid}: run it as root")
    return int(uid)


def identity(role: str) -> Identity:
    """Give the identity that root has chosen: operator:NAME (without it root), importer:CLUSTER, node:UUID or reader. Raises Refused."""
    kind, _, name = role.partition(":")
    if not role:
        return Identity("operator", "root", ORIGIN)
    hints: dict[str, Any] = {"operator": kinds.Name, "importer": kinds.Cluster, "node": kinds.Uuid, "reader": kinds.NameOrNone}
    if kind not in hints or (not name and kind != "reader"):
        raise Refused("invalid", f"Netcommon-Role is {role!a:.80}: expected operator:NAME, importer:CLUSTER, node:UUID or reader")
    try:
        return Identity(kind, read(hints[kind], name, "Netcommon-Role"), ORIGIN)  # type: ignore[arg-type]
    except Invalid as error:
        raise Refused("invalid", str(error), field="Netcommon-Role") from None


def newcomer(address: str) -> Identity:
    """Give the identity of somebody without a certificate, at a network address."""
    return Identity(NEWCOMER, "", address)  # type: ignore[arg-type]


def credential(certificate: Mapping[str, Any]) -> Credential:
    """Read a client's certificate, whose signature has been checked: ssl.SSLSocket.getpeercert. Raises Refused where it says nobody."""
    issuers = [value for part in certificate.get("issuer", ()) for name, value in part if name == "commonName"]
    for kind, text in certificate.get("subjectAltName", ()):
        role, colon, name = text.removeprefix(URN).partition(":")
        if kind != "URI" or not text.startswith(URN) or role not in HOLDERS or not colon or len(issuers) != 1:
            continue
        serial = str(certificate.get("serialNumber", "")).lower().rjust(32, "0")
        until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        try:
            return Credential(role, named(role, name), serial, str(issuers[0]).removeprefix(ISSUER), float(until))
        except Invalid:
            continue
    raise refused("foreign", "the certificate does not say whose it is: netcommon registry join URL TOKEN gets one that does")
