"""Define who is let in from other machines: authorities that sign certificates, who has one, and tokens that give one."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from netregistry.model import kinds
from netregistry.model.codec import Text

Holding = Literal["operator", "importer", "node", "reader"]
#: What a name in a certificate has: it stands in URIs and in keys.
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-")
HEX = frozenset("0123456789abcdef")
DAY = 86400.0
#: A certificate is good from so many seconds before it is made: clocks may be five minutes apart, and something is to spare.
SET_BACK = 600.0
LONGEST = 31536000.0  #: seconds for which a certificate is good at most, whatever the settings have been: a year
#: In a certificate: before ROLE:NAME, and before the id of the authority that has signed it.
URN, ISSUER = "urn:netcommon:", "netcommon registry authority "


def _hex(digits: int) -> Text:
    def rule(text: str) -> str:
        if len(text) != digits or not HEX.issuperset(text):
            raise ValueError
        return text

    return Text(rule, f"{digits} hexadecimal digits, in lower case")


def _plain(text: str) -> str:
    if not 0 < len(text) <= 64 or not PLAIN.issuperset(text):
        raise ValueError
    return text


Label = Annotated[str, _hex(8)]  #: of a token, of an authority
Digest = Annotated[str, _hex(64)]  #: SHA-256
Serial = Annotated[str, _hex(32)]  #: milliseconds since the epoch (48 bits), and 80 bits by chance
Person = Annotated[str, Text(_plain, "a name of 1 to 64 letters, digits and ._@-")]
NO_SERIAL = "0" * 32


class Authority(NamedTuple):
    """Who signs certificates. Its key is in no store.

    ``cross``: its certificate as the authority before it has signed it, "" for none: by that one it is known to who knows that one alone.
    """

    id: Label
    fingerprint: Digest  #: of its certificate
    certificate: str
    cross: str = ""
    made: kinds.Time = 0.0
    until: kinds.Time = 0.0


class Token(NamedTuple):
    """What lets somebody join, once. The token itself is kept nowhere: ``proof`` is a hash of it."""

    id: Label
    proof: Digest
    role: Holding
    name: kinds.NameOrNone = ""  #: who will have joined; of a node its UUID, "" for a new one
    made: kinds.Time = 0.0
    until: kinds.Time = 0.0
    used: kinds.Time = 0.0
    by: kinds.NameOrNone = ""  #: who has joined by it


class Forgotten(NamedTuple):
    """Say which certificates counted until their node was forgotten: those above one serial, up to another one."""

    above: Serial
    last: Serial


class Holder(NamedTuple):
    """Say who has a certificate. ``serial``: of the latest one; those up to ``floor`` are revoked. ``kept``: the end of the last of all.

    ``before``: the authority of the certificate by which the latest one was asked for, where that is by another one, as long as nobody has
    come by it: it may have been lost on its way, or not been kept. "": it is used. ``forgotten``: of those that are revoked, those that are
    so since the node was forgotten.
    """

    role: Holding
    name: kinds.Name
    serial: Serial
    since: kinds.Time = 0.0
    until: kinds.Time = 0.0
    authority: str = ""
    floor: Serial = NO_SERIAL
    kept: kinds.Time = 0.0
    before: str = ""
    forgotten: Forgotten | None = None

    @property
    def revoked(self) -> bool:
        return self.serial <= self.floor

    def forgot(self, serial: str) -> bool:
        """Tell whether a certificate counted until its node was forgotten."""
        return self.forgotten is not None and self.forgotten.above < serial <= self.forgotten.last


class Credential(NamedTuple):
    """What a certificate says, once its signature has been checked."""

    role: Holding
    name: str
    serial: str
    authority: str
    until: float


class Grant(NamedTuple):
    """What is to be signed: a certificate of this serial, for this role and name, that is good from ``since`` to ``until``."""

    role: Holding
    name: str
    serial: str
    since: float
    until: float
    authority: str
