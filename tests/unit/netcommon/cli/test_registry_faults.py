"""Keep what was asked for, such as a key that was made for it, unless the registry has refused it: a fault refuses nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from netregistry import joining
from netregistry.model.codec import Invalid
from netregistry.service import tls
from runtime import membership
from tests.support.cli import Cli
from tests.support.elsewhere import registry
from tests.support.service import Served


class Machines(NamedTuple):
    """A registry's machine, and a node that has joined it."""

    home: Cli
    other: Cli
    url: str
    service: Served

    @property
    def keys(self) -> list[str]:
        return sorted(os.listdir(self.home.root / "var/lib/netregistry/authority"))

    def authorities(self) -> dict[str, bool]:
        """Give the files of the keys of those that count, and whether each signs."""
        return {f"{item['authority']['id']}.key": item["signs"] for item in self.home.json("registry", "authority", "list")["items"]}

    def token(self, *words: str) -> str:
        return self.home("registry", "token", "create", *words).stdout.strip()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    home, other = Cli(tmp_path / "home"), Cli(tmp_path / "other")
    other.root.mkdir()
    with registry(home) as (service, url):
        found = Machines(home, other, url, service)
        other("registry", "join", url, found.token("node"), "--name", "node1")
        yield found


def full(*_given: object, **_more: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken(*_given: object) -> None:
    raise RuntimeError("a fault")


@pytest.mark.parametrize("stolen", [False, True], ids=["plain", "stolen"])
def test_an_authority_is_made_and_retired_while_run_is_full(machines: Machines, monkeypatch: pytest.MonkeyPatch, stolen: bool) -> None:
    """The service can show no certificate of the new one yet: it is committed all the same, and so is said to be."""
    home, service = machines.home, machines.service
    (old,) = machines.keys
    with monkeypatch.context() as patched:
        patched.setattr(tls, "tempfile", SimpleNamespace(NamedTemporaryFile=full))
        home("registry", "authority", "rotate", *(("--stolen",) if stolen else ()))
        if not stolen:
            assert sorted(machines.authorities()) == machines.keys and len(machines.keys) == 2
            home("registry", "authority", "retire", "--force", old.removesuffix(".key"))
        assert machines.authorities() == dict.fromkeys(machines.keys, True) and old not in machines.keys
        service.until(lambda: any("what is due is not done: nobody new" in line and "No space left" in line for line in service.log.lines))
    service.until(lambda: any("what was due is done again" in line for line in service.log.lines))
    machines.other("registry", "join", machines.url, machines.token("node", "node1"))
    assert service.service.figures.faults == 0


def test_the_key_stays_where_the_service_has_a_fault_behind_the_commit(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = machines.keys
    with monkeypatch.context() as patched:
        patched.setattr(machines.service.service.registry, "other_authorities", broken)
        assert "has a fault" in machines.home("registry", "authority", "rotate", status=69).stderr
    (new,) = (key for key, signs in machines.authorities().items() if signs)
    assert machines.keys == sorted((old, new))
    machines.home("registry", "authority", "retire", "--force", old.removesuffix(".key"))
    machines.home("registry", "authority", "rotate")


def test_no_key_stays_of_an_authority_that_is_refused(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise Invalid("certificate", "", "another one")

    before = machines.keys
    monkeypatch.setattr(machines.service.service.registry.issuer, "add", refuse)
    machines.home("registry", "authority", "rotate", status=64)
    assert machines.keys == before


def test_a_machine_keeps_under_which_uuid_it_joins_where_the_service_has_a_fault(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have joined by that: under another one its name would be another node's."""
    third = Cli(machines.other.root.parent / "third")
    third.root.mkdir()
    third.new_uuid()  # machines make others
    with monkeypatch.context() as patched:
        patched.setattr("netregistry.authority.x509.sign", broken)
        third("registry", "join", machines.url, machines.token("node"), "--name", "node2", status=69)
    made = membership.read(third.paths)
    assert made is not None and joining.begun(third.paths.lib) == made.uuid
    third("registry", "join", machines.url, machines.token("node", "node2"), "--name", "node2")
    assert membership.read(third.paths) == made
