"""Tell a node that it was forgotten, by the certificate that counted until then, and as long as it is not there again."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model import keys
from tests.support.registry import NODES, Registry, node
from tests.unit.netregistry.rules.test_certificates import KEY, NEWCOMER, add_authority, joining, reason, token


@pytest.fixture
def authority(registry: Registry) -> str:
    return add_authority(registry, "aaaaaaaa")


def joins(registry: Registry, label: str, name: str = "") -> dict[str, Any]:
    token(registry, label, name=name)
    found: dict[str, Any] = registry.do("certificate.join", "", joining(label), NEWCOMER)
    registry.time += 1
    return found


def forgets(registry: Registry) -> None:
    registry.do("node.forget", NODES[0])
    registry.time += 1


def test_all_that_counted_are_told_so_and_those_that_were_revoked_before_are_not(registry: Registry, authority: str) -> None:
    lost = joins(registry, "11111111")
    first = joins(registry, "22222222", NODES[0])  # which revokes the one before
    renewed = registry.do("certificate.renew", "", {"key": KEY, "serial": first["serial"], "authority": authority}, node(0))
    forgets(registry)
    assert [reason(registry, each) for each in (lost, first, renewed)] == ["revoked", "forgotten", "forgotten"]


def test_who_was_revoked_before_the_node_was_forgotten_is_told_nothing_of_that(registry: Registry, authority: str) -> None:
    stolen = joins(registry, "11111111")
    registry.do("certificate.revoke", "", {"role": "node", "name": NODES[0]})
    registry.time += 1
    forgets(registry)
    assert reason(registry, stolen) == "revoked"


def test_a_node_that_is_there_again_is_told_nothing_of_it_by_either(registry: Registry, authority: str) -> None:
    old = joins(registry, "11111111")
    forgets(registry)
    new = joins(registry, "22222222")
    assert (reason(registry, old), reason(registry, new)) == ("revoked", "")
    forgets(registry)
    assert (reason(registry, old), reason(registry, new)) == ("revoked", "forgotten")


def test_a_node_that_root_lets_be_there_again_without_a_certificate(registry: Registry, authority: str) -> None:
    old = joins(registry, "11111111")
    forgets(registry)
    registry.join(0)
    assert reason(registry, old) == "revoked"


def test_revoking_it_once_more_changes_nothing_of_that(registry: Registry, authority: str) -> None:
    """Call a certificate revoked, not forgotten, that was given after the copy the registry was restored from, and is revoked again."""
    old = joins(registry, "11111111")
    forgets(registry)
    after = {**old, "serial": f"{int(registry.time * 1000):012x}{'5' * 20}"}
    assert reason(registry, after) == "revoked"
    registry.time += 1
    registry.do("certificate.revoke", "", {"role": "node", "name": NODES[0]})
    assert (reason(registry, old), reason(registry, after)) == ("forgotten", "revoked")


def test_what_an_earlier_version_has_written_says_nothing_of_it(registry: Registry, authority: str) -> None:
    old = joins(registry, "11111111")
    forgets(registry)
    holder = registry.local.view.get(keys.certificate("node", NODES[0]))
    assert holder.forgot(old["serial"]) and not holder._replace(forgotten=None).forgot(old["serial"])
