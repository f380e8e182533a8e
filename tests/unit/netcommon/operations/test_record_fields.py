"""The fields that operations have on record, by the records' schema: an older version cannot read one with a field more."""

from __future__ import annotations

import hashlib

from netcommon.operations import kind
from netcommon.operations.base import declared
from netcommon.operations.kinds import KINDS
from runtime.record import SCHEMA

#: Kinds of the node itself: they are in no NIC's record.
OF_NODE = {"node-address", "unreachable-rest"}

#: Of each schema that was released or is about to be: the digest of all kinds' fields. Add a line with a new SCHEMA; never change one.
FIELDS = {
    3: "a1bf42ef10037b9c",
    4: "8d7d92d0dfcf70da",
    5: "90b1a03407f0bbcf",
    6: "90b1a03407f0bbcf",
    7: "9674e1008f9ea4d9",
    8: "c147a12d305a6d7a",
}


def digest() -> str:
    """All kinds with their fields in order, as one short text."""
    kinds = sorted((name, tuple(declared(kind(name)).items())) for name in KINDS if name not in OF_NODE)
    return hashlib.sha256(repr(kinds).encode()).hexdigest()[:16]


def test_a_new_field_raises_the_schema() -> None:
    assert digest() == FIELDS[SCHEMA], "the operations' fields differ from those of this schema: raise SCHEMA, and say so in CHANGELOG.md"
