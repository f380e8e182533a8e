"""Tokens, certificates and authorities: what lets in, once, and what counts no more."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from netregistry.model.certificate import DAY, Credential
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.rules.holders import admitted, authorities, came_over
from tests.support.registry import GANETI, NODES, OPERATOR, Registry, node

NEWCOMER = Identity("newcomer", "", "192.0.2.9")
KEY = hashlib.sha256(b"key").hexdigest()


def proof(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@pytest.fixture
def authority(registry: Registry) -> str:
    return add_authority(registry, "aaaaaaaa")


def add_authority(registry: Registry, label: str, years: int = 10, cross: str = "") -> str:
    body = {"id": label, "fingerprint": "0" * 64, "certificate": "PEM", "cross": cross, "until": registry.time + years * 365 * DAY}
    registry.do("authority.add", "", body)
    return label


def token(registry: Registry, label: str = "11111111", role: str = "node", name: str = "", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = registry.do("token.add", "", {"id": label, "proof": proof(label), "role": role, "name": name, **more})
    return found


def joining(label: str = "11111111", number: int | None = 0, key: str = KEY) -> dict[str, Any]:
    about = {} if number is None else {"node": {"uuid": NODES[number], "name": f"node{number}"}}
    return {"token": label, "proof": proof(label), "key": key, **about}


def credential(grant: dict[str, Any]) -> Credential:
    return Credential(grant["role"], grant["name"], grant["serial"], grant["authority"], grant["until"])


def reason(registry: Registry, grant: dict[str, Any]) -> str:
    """Give why a certificate does not count; "" where it does."""
    try:
        admitted(registry.local.view, credential(grant), registry.time)
    except Refused as refused:
        assert refused.code == 403 and "netcommon registry join" in refused.detail
        return str(refused.more["reason"])
    return ""


def test_a_token_lets_a_node_join_once(registry: Registry, authority: str) -> None:
    shown = token(registry)
    assert "proof" not in shown and shown["until"] == registry.time + DAY
    grant = registry.do("certificate.join", "", joining(), NEWCOMER)
    assert (grant["role"], grant["name"], grant["authority"]) == ("node", NODES[0], authority)
    assert grant["since"] <= registry.time - 300 and grant["until"] == registry.time + 90 * DAY
    joined = registry.local.view.node(NODES[0])
    assert joined is not None and joined.name == "node0" and reason(registry, grant) == ""
    items = [registry.store.get(key) for key in ("tokens/11111111", f"certificates/node:{NODES[0]}", f"nodes/{NODES[0]}")]
    assert len({item.revision for item in items if item is not None}) == 1 and None not in items  # one commit
    again = registry.refused("certificate.join", "", joining(number=1), NEWCOMER)
    assert (again["kind"], again["reason"]) == ("token", "token-used") and "netcommon registry token create" in again["detail"]


@pytest.mark.parametrize(
    ("asked", "kind", "field"),
    [
        ({}, "", ""),
        ({"name": "node0", "cluster": "c.example.com", "provides": ["fast"], "kind": "physical"}, "", ""),
        ({"cluster": "other.example.com"}, "exists", "cluster"),
        ({"cluster": ""}, "exists", "cluster"),
        ({"provides": ["fast", "slow"]}, "exists", "provides"),
        ({"kind": "virtual"}, "exists", "kind"),
        ({"name": "zz"}, "exists", "name"),
        ({"nosuchfield": "1"}, "invalid", "nosuchfield"),
        ({"cluster": 5}, "invalid", "cluster"),
    ],
)
def test_who_joins_again_joins_as_what_it_is(registry: Registry, authority: str, asked: dict[str, Any], kind: str, field: str) -> None:
    """Refuse what differs: it was passed over without a word, nobody set it, and its node was taken for one of that cluster."""
    token(registry)
    about = {"uuid": NODES[0], "name": "node0", "cluster": "c.example.com", "provides": ["fast"]}
    registry.do("certificate.join", "", joining() | {"node": about}, NEWCOMER)
    before = registry.local.view.node(NODES[0])
    token(registry, "22222222", name=NODES[0])
    body = joining("22222222") | {"node": {"uuid": NODES[0], **asked}}
    if kind:
        refused = registry.refused("certificate.join", "", body, NEWCOMER)
        assert (refused["kind"], refused["field"]) == (kind, field)
        assert kind != "exists" or f"netcommon registry node set node0 {field}=" in refused["detail"]
        body = joining("22222222")  # the token was not used
    registry.do("certificate.join", "", body, NEWCOMER)
    assert registry.local.view.node(NODES[0]) == before


def test_a_copy_of_a_join_is_answered_the_same(registry: Registry, authority: str) -> None:
    """An answer that was lost costs no token, and nobody else is given it for his key."""
    token(registry)
    request = registry.id()
    first = registry.do("certificate.join", "", joining(), NEWCOMER, id=request)
    registry.time += 60
    assert registry.do("certificate.join", "", joining(), NEWCOMER, id=request) == first
    assert registry.refused("certificate.join", "", joining(key=proof("another")), NEWCOMER, id=request)["kind"] == "exists"


def test_a_token_that_is_late_wrong_or_taken_back(registry: Registry, authority: str) -> None:
    token(registry, seconds=60)
    assert registry.refused("certificate.join", "", joining() | {"proof": proof("guessed")}, NEWCOMER)["reason"] == "token-unknown"
    assert registry.refused("certificate.join", "", joining("22222222"), NEWCOMER)["reason"] == "token-unknown"
    registry.time += 60
    assert registry.refused("certificate.join", "", joining(), NEWCOMER)["reason"] == "token-late"
    token(registry, "33333333")
    registry.do("token.revoke", "33333333")
    assert registry.refused("certificate.join", "", joining("33333333"), NEWCOMER)["reason"] == "token-unknown"
    assert registry.local.view.node(NODES[0]) is None


def test_a_token_for_a_new_node_makes_nobody_one_that_is_there(registry: Registry, authority: str) -> None:
    registry.join(0)
    token(registry)
    assert registry.refused("certificate.join", "", joining(), NEWCOMER)["reason"] == "token-other"
    token(registry, "22222222", name=NODES[0])
    assert registry.refused("certificate.join", "", joining("22222222", 1), NEWCOMER)["reason"] == "token-other"
    assert reason(registry, registry.do("certificate.join", "", joining("22222222"), NEWCOMER)) == ""


def test_who_joins_again_has_one_certificate(registry: Registry, authority: str) -> None:
    """Of a node: what was lost with it counts no more. Several machines may be one operator, or import one cluster."""
    grants: dict[tuple[str, str], dict[str, Any]] = {}
    for role, name in (("node", NODES[0]), ("importer", "gnt.example.com")):
        for label in (f"{len(grants):08x}", f"{len(grants) + 1:08x}"):
            token(registry, label, role, name)
            body = joining(label, 0 if role == "node" else None)
            grants[role, label] = registry.do("certificate.join", "", body, NEWCOMER)
            registry.time += 1
    assert [reason(registry, grant) for grant in grants.values()] == ["revoked", "", "", ""]


def test_a_token_that_was_made_while_the_clock_was_fast_is_no_better_than_another(registry: Registry, authority: str) -> None:
    """By one of a clock that was a hundred days ahead somebody joined for as long after it was right again."""
    registry.time += 100 * DAY
    token(registry)
    registry.time -= 100 * DAY
    assert registry.refused("certificate.join", "", joining(), NEWCOMER)["reason"] == "token-late"
    registry.time += 300
    token(registry, "22222222")
    registry.time -= 300  # as far as clocks may be apart
    registry.do("certificate.join", "", joining("22222222"), NEWCOMER)


def test_renewed_and_revoked(registry: Registry, authority: str) -> None:
    token(registry)
    first = registry.do("certificate.join", "", joining(), NEWCOMER)
    registry.time += 60 * DAY
    second = registry.do("certificate.renew", "", {"key": KEY, "serial": first["serial"], "authority": authority}, node(0))
    assert second["until"] == registry.time + 90 * DAY and second["serial"] > first["serial"]
    assert reason(registry, first) == reason(registry, second) == ""
    registry.do("certificate.revoke", "", {"role": "node", "name": NODES[0]})
    assert reason(registry, first) == reason(registry, second) == "revoked"
    renewing = {"key": KEY, "serial": second["serial"], "authority": authority}
    assert registry.refused("certificate.renew", "", renewing, node(0))["reason"] == "revoked"
    token(registry, "22222222", name=NODES[0])
    assert reason(registry, registry.do("certificate.join", "", joining("22222222"), NEWCOMER)) == ""


def test_a_certificate_ends_and_its_node_joins_again(registry: Registry, authority: str) -> None:
    token(registry)
    first = registry.do("certificate.join", "", joining(), NEWCOMER)
    registry.time += 90 * DAY
    assert reason(registry, first) == "expired"
    token(registry, "22222222", name=NODES[0])
    second = registry.do("certificate.join", "", joining("22222222"), NEWCOMER)
    assert reason(registry, second) == "" and registry.local.view.node(NODES[0]) is not None


def test_a_forgotten_node_cannot_come_back_by_its_certificate(registry: Registry, authority: str) -> None:
    token(registry)
    grant = registry.do("certificate.join", "", joining(), NEWCOMER)
    registry.do("node.forget", NODES[0])
    assert reason(registry, grant) == "forgotten"
    renewing = {"key": KEY, "serial": grant["serial"], "authority": authority}
    assert registry.refused("certificate.renew", "", renewing, node(0))["kind"] == "certificate"


def test_serials_grow_whatever_the_clock_does(registry: Registry, authority: str) -> None:
    token(registry)
    serials = [registry.do("certificate.join", "", joining(), NEWCOMER)["serial"]]
    for step in (60, -60, 0):
        registry.time += step
        renewing = {"key": KEY, "serial": serials[-1], "authority": authority}
        serials.append(registry.do("certificate.renew", "", renewing, node(0))["serial"])
    assert serials == sorted(set(serials))
    registry.do("certificate.revoke", "", {"role": "node", "name": NODES[0]})
    registry.time -= 3600
    token(registry, "22222222", name=NODES[0])
    assert reason(registry, registry.do("certificate.join", "", joining("22222222"), NEWCOMER)) == ""


def test_what_a_restored_registry_does_not_know_counts_and_can_be_revoked(registry: Registry, authority: str) -> None:
    """A certificate that was given since the backup: its node goes on, and is stopped as any other."""
    unknown = {"role": "reader", "name": "ann", "serial": f"{int(registry.time * 1000):012x}{'0' * 20}"}
    grant = {**unknown, "authority": authority, "until": registry.time + DAY}
    assert reason(registry, grant) == ""
    registry.do("certificate.revoke", "", {"role": "reader", "name": "ann"})
    assert reason(registry, grant) == "revoked"


def forged(registry: Registry, authority: str, seconds: float) -> dict[str, Any]:
    """Give a certificate of operator ann that somebody with the authority's key has signed, of a serial of some seconds after now."""
    serial = f"{int((registry.time + seconds) * 1000):012x}{'f' * 20}"
    return {"role": "operator", "name": "ann", "serial": serial, "authority": authority, "until": registry.time + DAY}


ANN = Identity("operator", "ann", "192.0.2.9")


@pytest.mark.parametrize("known", [True, False])
def test_a_serial_of_a_time_to_come_was_given_by_nobody(registry: Registry, authority: str, known: bool) -> None:
    if known:
        token(registry, "11111111", "operator", "ann")
        registry.do("certificate.join", "", joining(number=None), NEWCOMER)
    one = forged(registry, authority, 601)
    assert reason(registry, one) == "foreign"
    renewing = {"key": KEY, "serial": one["serial"], "authority": authority}
    assert registry.refused("certificate.renew", "", renewing, ANN)["reason"] == "foreign"
    assert reason(registry, forged(registry, authority, 299)) == "", "clocks may be five minutes apart"


@pytest.mark.parametrize("seconds", [60, 1e8])
def test_who_is_revoked_has_no_certificate_of_any_serial(registry: Registry, authority: str, seconds: float) -> None:
    """Somebody has the authority's key, and signs one of a serial behind those that are revoked; it is not renewed either."""
    token(registry, "11111111", "operator", "ann")
    registry.do("certificate.join", "", joining(number=None), NEWCOMER)
    registry.do("certificate.revoke", "", {"role": "operator", "name": "ann"})
    one = forged(registry, authority, seconds)
    for passed in (0.0, 120.0):
        registry.time += passed
        assert reason(registry, one) == "revoked"
        renewing = {"key": KEY, "serial": one["serial"], "authority": authority}
        assert registry.refused("certificate.renew", "", renewing, ANN)["reason"] == "revoked"
    token(registry, "22222222", "operator", "ann")
    assert reason(registry, registry.do("certificate.join", "", joining("22222222", None), NEWCOMER)) == ""


def test_nobody_goes_over_from_an_authority_whose_key_is_lost(registry: Registry, authority: str) -> None:
    """`rotate --lost` signs the new one by the old one's key no more; who has that key must not get in by a renewal."""
    token(registry)
    first = registry.do("certificate.join", "", joining(), NEWCOMER)
    add_authority(registry, "bbbbbbbb")
    renewing = {"key": KEY, "serial": first["serial"], "authority": authority}
    assert registry.refused("certificate.renew", "", renewing, node(0))["reason"] == "foreign"
    token(registry, "22222222", name=NODES[0])
    second = registry.do("certificate.join", "", joining("22222222"), NEWCOMER)
    assert second["authority"] == "bbbbbbbb"
    renewing = {"key": KEY, "serial": second["serial"], "authority": "bbbbbbbb"}
    assert registry.do("certificate.renew", "", renewing, node(0))["authority"] == "bbbbbbbb"


def swept(registry: Registry, days: float) -> None:
    """Let days pass, and the leader do what is due."""
    registry.local.run(registry.local.leader.elected(10.0))
    registry.time += days * DAY
    registry.local.work()


@pytest.mark.parametrize("seconds", [90 * DAY, DAY], ids=["as-it-was", "lowered-since"])
@pytest.mark.parametrize("known", [True, False], ids=["renewed-since-the-copy", "given-since-the-copy"])
def test_what_a_restored_registry_has_revoked_stays_so(registry: Registry, authority: str, known: bool, seconds: float) -> None:
    """The copy knows of an earlier certificate, which ends before the one that was given since."""
    token(registry, "11111111", "operator", "bob")
    first = registry.do("certificate.join", "", joining(number=None), NEWCOMER) if known else {"role": "operator", "name": "bob"}
    registry.time += 62 * DAY
    lost = {**first, "authority": authority, "serial": f"{int(registry.time * 1000):012x}{'0' * 20}", "until": registry.time + 90 * DAY}
    assert reason(registry, lost) == ""
    registry.do("settings.set", "", {"certificate_seconds": seconds})
    registry.do("certificate.revoke", "", {"role": "operator", "name": "bob"})
    for _ in range(89):
        swept(registry, 1)
        assert reason(registry, lost) == "revoked"
    swept(registry, 1)
    assert reason(registry, lost) == "expired"


def test_a_forgotten_node_cannot_come_back_by_a_certificate_that_a_restored_registry_does_not_know(
    registry: Registry, authority: str
) -> None:
    registry.join(0)
    lost = {"role": "node", "name": NODES[0], "serial": f"{int(registry.time * 1000):012x}{'0' * 20}"}
    lost |= {"authority": authority, "until": registry.time + 90 * DAY}
    assert reason(registry, lost) == ""
    registry.do("node.forget", NODES[0])
    assert reason(registry, lost) == "forgotten"


def test_two_authorities_count_and_the_newer_one_signs(registry: Registry, authority: str) -> None:
    token(registry)
    first = registry.do("certificate.join", "", joining(), NEWCOMER)
    registry.time -= 3600  # a clock that was set back
    add_authority(registry, "bbbbbbbb", cross="PEM")
    second = registry.do("certificate.renew", "", {"key": KEY, "serial": first["serial"], "authority": authority}, node(0))
    assert (first["authority"], second["authority"]) == ("aaaaaaaa", "bbbbbbbb")
    assert reason(registry, first) == reason(registry, second) == ""
    body = {"id": "cccccccc", "fingerprint": "0" * 64, "certificate": "PEM", "cross": "PEM", "until": registry.time + DAY}
    assert registry.refused("authority.add", "", body)["kind"] == "in-use"
    assert registry.refused("authority.retire", "bbbbbbbb")["kind"] == "in-use"
    assert registry.refused("authority.retire", "aaaaaaaa")["count"] == 1, "nobody has come by the second one"
    registry.do("authority.retire", "aaaaaaaa", {"force": True})
    assert (reason(registry, first), reason(registry, second)) == ("foreign", "")


@pytest.mark.parametrize("alone", [False, True], ids=["lost", "stolen"])
def test_a_key_is_lost_while_a_rotation_is_under_way(registry: Registry, authority: str, alone: bool) -> None:
    """Two count then, and either key may be the one: one that none before has signed is taken in all the same."""
    grants = []
    for number, label in enumerate(("11111111", "22222222")):
        token(registry, label, "operator", label)
        grants.append(registry.do("certificate.join", "", joining(label, None), NEWCOMER))
        if not number:
            add_authority(registry, "bbbbbbbb", cross="PEM")
    assert [grant["authority"] for grant in grants] == ["aaaaaaaa", "bbbbbbbb"]
    body = {"id": "cccccccc", "fingerprint": "0" * 64, "certificate": "PEM", "until": registry.time + 365 * DAY, "alone": alone}
    assert registry.refused("authority.add", "", {**body, "cross": "PEM", "alone": True})["kind"] == "invalid"
    registry.do("authority.add", "", body)
    assert [reason(registry, grant) for grant in grants] == (["foreign"] * 2 if alone else [""] * 2)
    for grant in grants:
        renewing = {"key": KEY, "serial": grant["serial"], "authority": grant["authority"]}
        refusal = registry.refused("certificate.renew", "", renewing, Identity("operator", grant["name"], "192.0.2.9"))
        assert refusal["reason"] == "foreign", "where it is alone, too: he may have been let in before"
    counting = [each.id for each in authorities(registry.local.view, registry.time)]
    assert counting == (["cccccccc"] if alone else ["aaaaaaaa", "bbbbbbbb", "cccccccc"])
    for label in counting[:-1]:
        registry.do("authority.retire", label, {"force": True})
    assert [each.id for each in authorities(registry.local.view, registry.time)] == ["cccccccc"]
    assert [reason(registry, grant) for grant in grants] == ["foreign"] * 2


def test_authorities_that_were_lost_have_a_limit(registry: Registry, authority: str) -> None:
    """A machine trusts sixteen. One that ends those before is taken in whatever their number."""
    for number in range(7):
        add_authority(registry, f"bbbbbb{number:02d}")
    body = {"id": "cccccccc", "fingerprint": "0" * 64, "certificate": "PEM", "until": registry.time + 365 * DAY}
    assert registry.refused("authority.add", "", body)["kind"] == "in-use"
    registry.do("authority.add", "", {**body, "alone": True})
    assert [each.id for each in authorities(registry.local.view, registry.time)] == ["cccccccc"]


def test_who_would_be_out_is_not_overlooked(registry: Registry, authority: str) -> None:
    """Two operators rotate, and the second one follows what he is told: nobody has had the time to go over."""
    token(registry)
    registry.do("certificate.join", "", joining(), NEWCOMER)
    add_authority(registry, "bbbbbbbb", cross="PEM")
    detail = registry.refused(
        "authority.add", "", {"id": "cccccccc", "fingerprint": "0" * 64, "certificate": "P", "cross": "P", "until": 2e9}
    )["detail"]
    assert "bbbbbbbb signs since" in detail and "when certificate list shows aaaaaaaa no more" in detail
    problem = registry.refused("authority.retire", "aaaaaaaa")
    assert (problem["kind"], problem["count"]) == ("in-use", 1) and "node node0" in problem["detail"]
    registry.do("authority.retire", "aaaaaaaa", {"force": True})


def joins(registry: Registry, label: str, role: str, name: str) -> dict[str, Any]:
    token(registry, label, role, name)
    found: dict[str, Any] = registry.do("certificate.join", "", joining(label, None), NEWCOMER)
    registry.time += 1
    return found


@pytest.mark.parametrize("role", ["operator", "importer", "reader"])
def test_a_join_whose_answer_was_lost_keeps_the_authority_of_the_certificate_before(registry: Registry, authority: str, role: str) -> None:
    """Refuse it while somebody may go on with that one: he was out when it was retired, without a word before."""
    name = GANETI.name if role == "importer" else "ann"
    first = joins(registry, "11111111", role, name)
    add_authority(registry, "bbbbbbbb", cross="PEM")
    latest = [joins(registry, label, role, name) for label in ("22222222", "33333333")][-1]
    assert reason(registry, first) == ""
    problem = registry.refused("authority.retire", "aaaaaaaa")
    assert (problem["kind"], problem["count"]) == ("in-use", 1) and f"{role} {name}" in problem["detail"]
    assert [came_over(registry.local.view, credential(each)) for each in (first, latest)] == [False, True]
    registry.do("certificate.revoke", "", {"role": role, "name": name})
    joins(registry, "44444444", role, name)
    registry.do("authority.retire", "aaaaaaaa")


def test_who_comes_by_an_earlier_certificate_has_not_come_by_the_latest(registry: Registry, authority: str) -> None:
    """Two machines are one operator: of one the latest was lost, the other comes by its own of the same authority."""
    machines = [joins(registry, label, "operator", "ann") for label in ("11111111", "22222222")]
    add_authority(registry, "bbbbbbbb", cross="PEM")
    renewed = []
    for each in machines:
        body = {"key": KEY, "serial": each["serial"], "authority": authority}
        renewed.append(registry.do("certificate.renew", "", body, Identity("operator", "ann", "tls")))
        registry.time += 1
    assert [came_over(registry.local.view, credential(each)) for each in (*machines, *renewed)] == [False, False, False, True]
    later = credential(renewed[1])._replace(serial=f"{int(registry.time * 1000):012x}{'0' * 20}")
    assert came_over(registry.local.view, later), "a registry that was restored does not know it"


@pytest.mark.parametrize("why", ["revoked", "ended"])
def test_who_is_out_already_keeps_no_authority(registry: Registry, authority: str, why: str) -> None:
    token(registry)
    registry.do("certificate.join", "", joining(), NEWCOMER)
    add_authority(registry, "bbbbbbbb")
    if why == "revoked":
        registry.do("certificate.revoke", "", {"role": "node", "name": NODES[0]})
    else:
        registry.time += 91 * DAY
    registry.do("authority.retire", "aaaaaaaa")


def test_no_certificate_outlives_its_authority(registry: Registry) -> None:
    assert registry.refused("certificate.join", "", joining(), NEWCOMER)["reason"] == "token-unknown"
    token(registry)
    assert "authority rotate" in registry.refused("certificate.join", "", joining(), NEWCOMER)["detail"]
    body = {"id": "aaaaaaaa", "fingerprint": "0" * 64, "certificate": "PEM", "until": registry.time + DAY}
    registry.do("authority.add", "", body)
    assert registry.do("certificate.join", "", joining(), NEWCOMER)["until"] == registry.time + DAY


@pytest.mark.parametrize(
    "wanted",
    [
        {"role": "operator", "name": ""},
        {"role": "operator", "name": "a/b"},
        {"role": "operator", "name": "ä"},
        {"role": "operator", "name": "a" * 65},
        {"role": "node", "name": "node1"},
        {"role": "importer", "name": ""},
        {"role": "root", "name": "x"},
        {"role": "reader", "name": "ann", "seconds": 59},
        {"role": "reader", "name": "ann", "id": "1111111"},
        {"role": "reader", "name": "ann", "proof": "secret"},
    ],
)
def test_tokens_that_are_none(registry: Registry, wanted: dict[str, Any]) -> None:
    assert registry.refused("token.add", "", {"id": "11111111", "proof": proof("a"), **wanted})["kind"] == "invalid"


def test_what_ended_long_ago_is_swept(registry: Registry, authority: str) -> None:
    token(registry, "11111111", "reader", "ann", seconds=60)
    token(registry, "22222222", "reader", "ann", seconds=60)
    registry.do("certificate.join", "", joining("11111111", None), NEWCOMER)
    registry.local.run(registry.local.leader.elected(10.0))
    registry.time += DAY
    registry.local.work()
    assert set(registry.local.view.all("tokens")) == {"tokens/11111111", "tokens/22222222"}
    registry.time += DAY
    registry.local.work()
    assert registry.local.view.all("tokens") == {} and set(registry.local.view.all("certificates")) == {"certificates/reader:ann"}
    registry.time += 90 * DAY
    registry.local.work()
    assert registry.local.view.all("certificates") == {}


@pytest.mark.parametrize("action", ["authority.add", "certificate.join", "certificate.renew"])
def test_what_is_read_or_signed_beside_the_rules_is_no_part_of_a_batch(registry: Registry, authority: str, action: str) -> None:
    """Refuse it: of a batch each authority was the second one, whatever its certificate: a text that is none lets nobody in any more."""
    token(registry)
    first = registry.do("certificate.join", "", joining(), NEWCOMER)
    bodies: dict[str, Any] = {
        "authority.add": [{"id": f"{number:08x}", "fingerprint": "0" * 64, "certificate": "none", "until": 2e9} for number in range(3)],
        "certificate.join": [joining()],
        "certificate.renew": [{"key": KEY, "serial": first["serial"], "authority": authority}],
    }
    before = registry.everything()
    for who in (OPERATOR, node(0)):
        problem = registry.refused("batch", "", {"parts": [{"action": action, "body": body} for body in bodies[action]]}, who)
        alone = (action, who.role) in (("authority.add", "operator"), ("certificate.renew", "operator"), ("certificate.renew", "node"))
        assert problem["kind"] == ("invalid" if alone else "forbidden")
        assert ("action" in problem.get("field", "")) == alone and registry.everything() == before
