"""Names for the shell are as the registry has them, and go with the service."""

from __future__ import annotations

from pathlib import Path

from netregistry.service.index import Index
from netregistry.service.names import Names
from netregistry.stores.base import Batch
from tests.support.netns import wait_until
from tests.support.registry import Registry
from tests.support.service import Lines, served


def test_names_are_written_where_they_have_changed(tmp_path: Path, registry: Registry) -> None:
    index, log = Index(registry.local.view), Lines()
    names = Names(str(tmp_path / "names"), lambda: registry.local.view, index, log)
    network = registry.network("blue")
    nic = registry.nic(instance="web1", index=0, network=network)
    registry.nic(instance="web2", name="a b")
    index.hear(registry.local.view, None)
    names.write()

    def read(kind: str) -> list[str]:
        return (tmp_path / "names" / kind).read_text().splitlines()

    assert (read("networks"), read("nics"), read("nodes")) == (["blue"], ["web1/0", "web2/a b"], [])
    before = {path.name: path.stat().st_ino for path in (tmp_path / "names").iterdir()}
    names.write()
    assert {path.name: path.stat().st_ino for path in (tmp_path / "names").iterdir()} == before, "nothing has changed"
    registry.do("nic.delete", nic.uuid)
    index.hear(registry.local.view, None)
    names.write()
    assert read("nics") == ["web2/a b"] and log.lines == []
    names.remove()
    assert not (tmp_path / "names").exists()


def test_what_is_no_name_does_not_write_the_names_anew(tmp_path: Path) -> None:
    """All of them are sorted and written while nobody is answered: with 100,000 NICs for a tenth of a second, every five seconds."""
    parts: list[Index] = []

    def hear(batch: Batch | None) -> None:
        for part in parts:
            part.hear(registry.local.view, batch)

    registry = Registry(None, hear)
    parts.append(Index(registry.local.view))
    names = Names(str(tmp_path / "names"), lambda: registry.local.view, parts[0], Lines())
    nic = registry.nic(instance="web1", index=0)
    names.write()
    file = tmp_path / "names" / "nics"
    before = file.stat().st_ino
    for body in ({"options": [{"name": "isolated", "value": "yes"}]}, {"owner": "alice"}, {"primary": True}):
        registry.do("nic.set", nic.uuid, body)
        names.write()
        assert file.stat().st_ino == before
    registry.do("nic.set", nic.uuid, {"instance": "web9"})
    names.write()
    assert file.read_text() == "web9/0\n" and list(parts[0].find("web9")) == [("nics", f"nics/{nic.uuid}", "web9/0")]
    registry.do("nic.delete", nic.uuid)
    names.write()
    assert file.read_text() == "" and parts[0].keys("nics") == []


def test_what_cannot_be_written_is_said_once(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "names").write_text("a file is in the way")
    log = Lines()
    names = Names(str(tmp_path / "names"), lambda: registry.local.view, Index(registry.local.view), log)
    for _ in range(3):
        names.write()
    assert len(log.lines) == 1 and "names for the shell" in log.lines[0]


def test_a_service_keeps_them_while_it_runs(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        service.join(0)
        wait_until((tmp_path / "names/nodes").exists)
    assert sorted(path.name for path in tmp_path.iterdir()) == []
