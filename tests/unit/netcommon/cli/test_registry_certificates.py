"""netcommon registry authority, token, certificate and join, as an operator types them on two machines."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netcommon.cli.registry_client import client
from netregistry import credentials, joining
from netregistry.authority import x509
from netregistry.client import Client
from netregistry.refusal import Refused
from netregistry.service.tls import Listening
from netregistry.stores.sqlite import SqliteStore
from runtime import membership
from runtime.errors import HostRefused, TryAgain
from runtime.folder import Folder
from tests.support.cli import Cli
from tests.support.service import Served, served
from tests.support.tls import NAMES, free_port


class Machines(NamedTuple):
    """A registry's machine, and another one. ``url``: where the registry is for the other one."""

    home: Cli
    other: Cli
    url: str
    service: Served


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    home, other = Cli(tmp_path / "home"), Cli(tmp_path / "other")
    (home.root / "run/netregistry").mkdir(parents=True)
    other.root.mkdir()
    home("registry", "init")
    port, keys = free_port(), str(home.root / "var/lib/netregistry/authority")
    others = Listening((("127.0.0.1", port),), NAMES, keys)
    store = SqliteStore(str(home.root / "var/lib/netregistry/registry.sqlite"))
    with served(home.root / "run/netregistry", store=store, others=others) as service:
        service.until(lambda: service.service.figures.until > 0)
        yield Machines(home, other, f"https://localhost:{port}", service)


def token(machines: Machines, *words: str) -> str:
    return machines.home("registry", "token", "create", *words).stdout.strip()


def certificates(machines: Machines) -> dict[tuple[str, str], str]:
    rows = [line.split() for line in machines.home("registry", "certificate", "list").stdout.splitlines()[1:]]
    return {(row[0], row[1]): row[2] for row in rows}


def test_a_node_joins_is_revoked_and_joins_again(machines: Machines) -> None:
    home, other = machines.home, machines.other
    said = other("registry", "join", machines.url, token(machines, "node"), "cluster=c.example.com", "--name", "node1").stdout
    assert "as node node1" in said and machines.url in said
    me = membership.read(other.paths)
    assert me is not None and me.name == "node1"
    (node,) = other.json("registry", "node", "list")["items"]
    assert (node["node"]["uuid"], node["node"]["cluster"]) == (me.uuid, "c.example.com")
    assert certificates(machines) == {("node", "node1"): "counts"}
    assert "settings is for operator and reader" in other("registry", "settings", status=69).stderr
    home("registry", "certificate", "revoke", "node", "node1")
    said = other("registry", "node", "list", status=69).stderr
    assert "revoked" in said and "netcommon registry join URL TOKEN" in said
    assert "has joined already" in other("registry", "join", machines.url, token(machines, "node"), status=69).stderr
    other("registry", "join", machines.url, token(machines, "node", "node1"))
    assert len(other.json("registry", "node", "list")["items"]) == 1
    found = membership.read(other.paths)
    assert found == me


def test_a_machine_that_was_installed_anew_is_its_node_again(machines: Machines) -> None:
    """By a token for that node: it does not know its UUID any more. By another token, or name, it is told what makes it that."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "node"), "--name", "node1")
    me = membership.read(other.paths)
    shutil.rmtree(other.paths.lib)
    said = other("registry", "join", machines.url, token(machines, "node"), "--name", "node1", status=69).stderr
    assert "netcommon registry token create node node1" in said and "netcommon registry node forget node1" in said
    home("registry", "certificate", "revoke", "node", "node1")
    text = token(machines, "node", "node1")
    assert "for node" in other("registry", "join", machines.url, text, "--name", "node2", status=69).stderr
    assert membership.read(other.paths) is None
    assert "as node node1" in other("registry", "join", machines.url, text).stdout
    assert me is not None and membership.read(other.paths) == me
    assert len(other.json("registry", "node", "list")["items"]) == 1 and certificates(machines) == {("node", "node1"): "counts"}


def test_a_node_that_joins_again_is_what_the_registry_knows(machines: Machines) -> None:
    """Refuse what else is asked for with what does it; the name is the registry's, which an operator may have changed since."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "node"), "--name", "node1")
    me, text = membership.read(other.paths), token(machines, "node", "node1")
    assert me is not None
    for more, status, said in (
        (("cluster=new.example.com",), 69, "netcommon registry node set node1 cluster=new.example.com"),
        (("provides=fast",), 69, "netcommon registry node set node1 provides=fast"),
        (("--name", "zz"), 69, "netcommon registry node set node1 name=zz"),
        (("nosuchfield=1",), 64, "nosuchfield"),
    ):
        assert said in other("registry", "join", machines.url, text, *more, status=status).stderr
        assert membership.read(other.paths) == me
    home("registry", "node", "set", "node1", "name=node7", "cluster=new.example.com", "provides=fast,slow")
    assert "as node node7" in other("registry", "join", machines.url, text, "cluster=new.example.com", "provides=slow,fast").stdout
    assert membership.read(other.paths) == me._replace(name="node7") and joining.begun(other.paths.lib) == ""
    other("registry", "join", machines.url, token(machines, "node", "node7"), "--name", "node7")
    (node,) = home.json("registry", "node", "list")["items"]
    assert (node["node"]["name"], node["node"]["cluster"]) == ("node7", "new.example.com")


@pytest.mark.parametrize("cut_off", [False, True], ids=["unavailable", "cut-off"])
def test_a_machine_that_was_installed_anew_joins_though_its_first_try_was_not_answered(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """The same command again: by the UUID that the first one had made it was another node, for good."""
    other, issuer = machines.other, machines.service.service.registry.issuer
    other("registry", "join", machines.url, token(machines, "node"), "--name", "node1")
    me = membership.read(other.paths)
    shutil.rmtree(other.paths.lib)
    text = token(machines, "node", "node1")
    with monkeypatch.context() as patched:
        if cut_off:
            patched.setattr(Client, "change", cut)
        else:
            patched.setattr(issuer, "join", away)
        other("registry", "join", machines.url, text, status=75)
    made = membership.read(other.paths)
    assert me is not None and made is not None and made.uuid != me.uuid
    assert "as node node1" in other("registry", "join", machines.url, text).stdout
    assert membership.read(other.paths) == me and joining.begun(other.paths.lib) == ""
    assert certificates(machines) == {("node", "node1"): "counts"}


def away(*_given: object) -> None:
    raise Refused("unavailable", "the store does not answer")


def cut(*_given: object) -> None:
    raise TryAgain("the registry does not answer")


def test_a_node_that_is_one_becomes_no_other_by_a_token(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its join was cut off behind the answer, when all but a mark was kept."""
    other = machines.other
    third = Cli(other.root.parent / "third")
    third.root.mkdir()
    third.new_uuid()  # machines make others
    third("registry", "join", machines.url, token(machines, "node"), "--name", "node2")
    with monkeypatch.context() as patched:
        patched.setattr(joining, "over", cut)
        other("registry", "join", machines.url, token(machines, "node"), "--name", "node1", status=75)
    me = membership.read(other.paths)
    assert me is not None and joining.begun(other.paths.lib) == me.uuid
    assert "for node" in other("registry", "join", machines.url, token(machines, "node", "node2"), status=69).stderr
    assert membership.read(other.paths) == me


def test_who_is_not_let_in_is_no_node(machines: Machines) -> None:
    """It stays what it was: nothing, or the node that it was, by its name."""
    other, text = machines.other, token(machines, "node")
    other("registry", "join", f"https://localhost:{free_port()}", text, "--name", "node1", status=75)
    assert membership.read(other.paths) is None
    other("registry", "join", machines.url, text, "--name", "node1")
    me, again = membership.read(other.paths), token(machines, "node", "node1")
    other("registry", "join", f"https://localhost:{free_port()}", again, "--name", "node2", status=75)
    assert membership.read(other.paths) == me
    other("registry", "join", machines.url, text, "--name", "node2", status=69)
    assert membership.read(other.paths) == me
    third = Cli(other.root.parent / "third")
    third.root.mkdir()
    third("registry", "join", machines.url, token(machines, "node"), "--name", "node1", status=69)
    assert membership.read(third.paths) is None


def test_a_machine_that_an_operator_has_is_no_node_by_his_certificate(machines: Machines) -> None:
    """Its agent would have no certificate, and ask a socket that is not there."""
    other = machines.other
    other("registry", "join", machines.url, token(machines, "operator", "ann"))
    for more in ((), ("--dry-run",)):
        assert "netcommon registry join URL TOKEN" in other("registry", "node", "join", "node1", *more, status=69).stderr
    assert membership.read(other.paths) is None and machines.home.json("registry", "node", "list")["items"] == []


@pytest.mark.parametrize("end", ["\n", "", "\r\n", "\nmore\n"])
def test_a_token_is_read_from_standard_input(machines: Machines, end: str) -> None:
    """On a command line every user of the machine would see it."""
    text = token(machines, "reader", "ann")
    assert "as reader ann" in machines.other("registry", "join", machines.url, "-", stdin=text + end).stdout
    assert certificates(machines) == {("reader", "ann"): "counts"}
    assert "has been used" in machines.other("registry", "join", machines.url, "-", stdin=text, status=69).stderr


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe", b"x" * 100_000])
def test_what_is_no_token_on_standard_input(machines: Machines, data: bytes) -> None:
    assert "no token" in machines.other("registry", "join", machines.url, "-", stdin=data, status=64).stderr


def test_the_folder_is_roots_and_the_key_stays(machines: Machines) -> None:
    other = machines.other
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    folder = Path(other.paths.lib) / "certificates/reader"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in os.listdir(folder)} == {0o600}
    key = (folder / "identity.pem").read_text().partition("-----BEGIN CERTIFICATE-----")[0].encode()
    body = key.splitlines()[1]
    assert [name for name, value in machines.service.everything().items() if body in value] == []
    keys = Path(machines.home.root) / "var/lib/netregistry/authority"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700 and [stat.S_IMODE(each.stat().st_mode) for each in keys.iterdir()] == [0o600]


def test_an_operator_and_an_importer_elsewhere(machines: Machines) -> None:
    other = machines.other
    for role, name in (("operator", "ann"), ("importer", "gnt.example.com")):
        other("registry", "join", machines.url, token(machines, role, name))
    other("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    assert "operator ann" in machines.home("registry", "history").stdout
    assert certificates(machines) == {("operator", "ann"): "counts", ("importer", "gnt.example.com"): "counts"}
    with client(other.app(), "importer:gnt.example.com") as asked:
        assert asked.get("imports").body["items"] == []
    said = "has joined as the importer of gnt.example.com, and not of other.example.com"
    with pytest.raises(HostRefused, match=said), client(other.app(), "importer:other.example.com") as asked:
        asked.get("imports")  # it has no certificate of that one


def test_an_operator_elsewhere_has_the_whole(machines: Machines) -> None:
    """The copy is of the registry that other commands ask, whatever file lies on the operator's own machine."""
    home, other = machines.home, machines.other
    home("registry", "network", "add", "blue")
    copies = [str(other.root / name) for name in ("reader", "operator", "beside")]
    other("registry", "join", machines.url, token(machines, "reader", "bob"))
    assert "for operator" in other("registry", "backup", copies[0], status=69).stderr and not os.path.exists(copies[0])
    other("registry", "join", machines.url, token(machines, "operator", "ann"))
    for copy in copies[1:]:
        assert other("registry", "backup", copy).stdout == f"the registry at {machines.url} is copied to {copy}\n"
        with SqliteStore(copy) as store:
            assert len(store.list("networks/").items) == 1
        if copy == copies[1]:
            other("registry", "init")  # an empty one, which nobody serves
    assert machines.url in other("registry", "compact", "--dry-run").stdout
    assert other.json("registry", "compact")["done"] is True


def shut_out(machines: Machines, how: str) -> None:
    """Let the certificate of the operator elsewhere count no more; the node's, by which the machine joins anew if need be, counts."""
    home, other = machines.home, machines.other
    if how == "revoked":
        home("registry", "certificate", "revoke", "operator", "ann")
    elif how == "not-renewed":
        other.wall = time.time()
        found = credentials.read(other.paths.lib, "operator")
        assert found is not None
        with Folder.make(found.folder) as folder:
            credentials._write(folder, found._replace(since=0.0, until=other.wall - 1))
        home("registry", "certificate", "revoke", "operator", "ann")
    else:
        home("registry", "authority", "rotate", "--stolen")
        other("registry", "join", machines.url, token(machines, "node", "node1"))


@pytest.mark.parametrize("how", ["revoked", "not-renewed", "foreign"])
def test_an_operators_certificate_that_counts_no_more_does_not_shut_the_nodes_out(machines: Machines, how: str) -> None:
    """Ask as the node for what is looked at; what changes something is the operator's. Both say which certificate it is, and where."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "node"), "--name", "node1")
    other("registry", "join", f"{machines.url},{machines.url}", token(machines, "operator", "ann"))  # as of two services
    shut_out(machines, how)
    folder = f"{other.paths.lib}/certificates/operator"
    for words in (("registry", "nic", "list"), ("registry", "find", "node1"), ("list", "--cluster")):
        said = other(*words).stderr
        assert f"rm -r {folder})" in said and "operator ann" in said and "shown to this machine as a node" in said
    copy = str(other.root / "copy")
    for more in (("network", "add", "blue"), ("node", "set", "node1", "provides=fast"), ("settings",), ("backup", copy)):
        said = other("registry", *more, status=69).stderr
        assert f"rm -r {folder})" in said and "operator ann" in said
    assert home.json("registry", "network", "list")["items"] == [] and not os.path.exists(copy)
    shutil.rmtree(folder)
    assert other("registry", "nic", "list").stderr == ""
    node = home.json("registry", "node", "list")["items"][0]["node"]["uuid"]
    home("registry", "certificate", "revoke", "node", "node1")
    said = other("registry", "nic", "list", status=69).stderr
    assert f"(asked as node {node}, by " in said and "rm -r" not in said


@pytest.mark.parametrize("order", [1, -1], ids=["down-last", "down-first"])
def test_it_does_not_where_one_of_several_services_is_down(machines: Machines, order: int) -> None:
    """Ask by the next certificate, which the one that is there may take; where there is none the one that is down may take this."""
    other, urls = machines.other, ",".join([machines.url, f"https://localhost:{free_port()}"][::order])
    other("registry", "join", urls, token(machines, "operator", "ann"))
    other("registry", "join", urls, token(machines, "node"), "--name", "node1")
    shut_out(machines, "foreign")
    for words in (("registry", "nic", "list"), ("registry", "find", "node1")):
        assert "operator ann" in (said := other(*words).stderr) and "shown to this machine as a node" in said
    assert "operator ann" in other("registry", "network", "add", "blue", status=75).stderr
    shutil.rmtree(f"{other.paths.lib}/certificates/node")
    assert "operator ann" in other("registry", "nic", "list", status=75).stderr


def test_tokens_are_listed_taken_back_and_used_once(machines: Machines) -> None:
    first, second = token(machines, "reader", "ann"), token(machines, "reader", "bob", "--for", "1h")
    machines.other("registry", "join", machines.url, first)
    said = machines.other("registry", "join", machines.url, first, status=69).stderr
    assert "has been used, by reader ann" in said and "netcommon registry token create" in said
    rows = machines.home("registry", "token", "list").stdout
    assert "used by reader ann" in rows and "good" in rows
    assert first.split(".")[2] not in rows and first.split(".")[2] not in str(machines.home.json("registry", "token", "list"))
    machines.home("registry", "token", "revoke", second.split(".")[1])
    assert "no such token" in machines.other("registry", "join", machines.url, second, status=69).stderr
    made = machines.home.json("registry", "token", "create", "node")
    assert made["value"]["token"].startswith("node.") and "proof" not in made["value"]
    machines.home("registry", "token", "create", "operator", status=64)
    machines.home("registry", "token", "create", "node", "no-such-node", status=64)


def test_a_whole_token_is_taken_back_and_its_secret_not_said(machines: Machines) -> None:
    text = token(machines, "node")
    done = machines.home("registry", "token", "revoke", text)
    assert done.stdout == f"token {text.split('.')[1]} taken back\n" and text.split(".")[2] not in done.stderr
    assert "no tokens" in machines.home("registry", "token", "list").stdout
    assert "no such token" in machines.other("registry", "join", machines.url, text, "--name", "node1", status=69).stderr


def test_a_name_that_is_misspelt_is_said_where_it_is_revoked(machines: Machines) -> None:
    """It is revoked all the same: a registry that was restored may have forgotten it."""
    machines.other("registry", "join", machines.url, token(machines, "operator", "ann"))
    wrong = machines.home("registry", "certificate", "revoke", "operator", "anm")
    assert "no certificate of operator anm is known" in wrong.stderr
    assert certificates(machines) == {("operator", "ann"): "counts", ("operator", "anm"): "revoked"}
    assert not machines.home("registry", "certificate", "revoke", "operator", "ann").stderr
    assert certificates(machines)["operator", "ann"] == "revoked"


def test_who_is_not_the_registry_is_told_nothing(machines: Machines, tmp_path: Path) -> None:
    """The authority is held against the fingerprint of the token: another registry is refused before the secret is sent."""
    text = token(machines, "reader", "ann")
    stranger = x509.make_authority(1.8e9)
    parts = text.split(".")
    der = ssl.PEM_cert_to_DER_cert(stranger.authority.certificate)
    wrong = ".".join((*parts[:3], hashlib.sha256(der).hexdigest()))
    said = machines.other("registry", "join", machines.url, wrong, status=69).stderr
    assert "fingerprint" in said
    (item,) = machines.home.json("registry", "token", "list")["items"]
    assert item["used"] == 0 and credentials.read(machines.other.paths.lib, "reader") is None
    machines.other("registry", "join", machines.url, text)


def test_the_authority_is_rotated(machines: Machines) -> None:
    home, other = machines.home, machines.other
    before = token(machines, "reader", "bob")
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    (old,) = home.json("registry", "authority", "list")["items"]
    said = home("registry", "authority", "rotate").stdout
    items = home.json("registry", "authority", "list")["items"]
    (new,) = [item for item in items if item["signs"]]
    assert len(items) == 2 and new["authority"]["fingerprint"] in said and old["authority"]["id"] != new["authority"]["id"]
    again = home("registry", "authority", "rotate", status=69).stderr
    assert f"when certificate list shows {old['authority']['id']} no more" in again and f"{new['authority']['id']} signs since" in again
    other("registry", "network", "list")  # who knows the old one alone
    third = Cli(other.root.parent / "third")
    third.root.mkdir()
    third("registry", "join", machines.url, before)  # by the fingerprint of the old one
    refused = home("registry", "authority", "retire", old["authority"]["id"], status=69).stderr
    assert "1 of the latest certificates" in refused and "reader ann" in refused and "go over by themselves" in refused
    assert "counts" in home("registry", "certificate", "list").stdout
    other("registry", "network", "list")
    home("registry", "authority", "retire", "--force", old["authority"]["id"])
    states = {line.split()[1]: line.split()[2] for line in home("registry", "certificate", "list").stdout.splitlines()[1:]}
    assert states == {"ann": "foreign", "bob": "counts"}
    assert sorted(os.listdir(home.root / "var/lib/netregistry/authority")) == [f"{new['authority']['id']}.key"]
    assert "is the one that signs" in home("registry", "authority", "retire", new["authority"]["id"], status=69).stderr
    assert "netcommon registry" in other("registry", "network", "list", status=69).stderr
    third("registry", "network", "list")


@pytest.mark.parametrize("how", [(), ("--lost",), ("--stolen",)], ids=["plain", "lost", "stolen"])
def test_an_authority_is_rotated_where_its_key_is_used(machines: Machines, how: tuple[str, ...]) -> None:
    """On an operator's own machine the key would stay with him: nobody could join, and by --stolen all would be out, he too."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "operator", "ann"))
    before = home.json("registry", "authority", "list")["items"]
    said = other("registry", "authority", "rotate", *how, status=69).stderr
    assert "on the registry's machine" in said and "--lost" not in said and machines.url in said
    assert home.json("registry", "authority", "list")["items"] == before
    assert not os.path.exists(other.root / "var/lib/netregistry/authority")
    other("registry", "network", "list")
    home("registry", "authority", "rotate", *how)


def test_the_authoritys_key_is_lost(machines: Machines) -> None:
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    (old,) = home.json("registry", "authority", "list")["items"]
    (home.root / f"var/lib/netregistry/authority/{old['authority']['id']}.key").unlink()
    assert "--lost" in home("registry", "authority", "rotate", status=69).stderr
    home("registry", "authority", "rotate", "--lost")
    assert "netcommon registry join" in other("registry", "network", "list", status=69).stderr
    assert "its key is lost" in home("registry", "authority", "retire", old["authority"]["id"], status=69).stderr
    home("registry", "authority", "retire", "--force", old["authority"]["id"])
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    other("registry", "network", "list")


def test_somebody_else_has_a_key_while_a_rotation_is_under_way(machines: Machines) -> None:
    """Which of both it is does not matter: neither counts any more, and the new one signs alone."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    home("registry", "authority", "rotate")
    before = [item["authority"]["id"] for item in home.json("registry", "authority", "list")["items"]]
    other("registry", "network", "list")
    home("registry", "authority", "rotate", "--lost", "--stolen", status=2)
    said = home("registry", "authority", "rotate", "--stolen").stdout
    assert f"{', '.join(before)} count no more" in said
    (new,) = home.json("registry", "authority", "list")["items"]
    assert new["signs"] and new["authority"]["id"] not in before and new["authority"]["cross"] == ""
    assert os.listdir(home.root / "var/lib/netregistry/authority") == [f"{new['authority']['id']}.key"]
    assert "netcommon registry join" in other("registry", "network", "list", status=69).stderr
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    other("registry", "network", "list")


def test_a_key_is_lost_while_a_rotation_is_under_way(machines: Machines) -> None:
    """Check that who was let in before stays so until both are retired."""
    home, other = machines.home, machines.other
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    home("registry", "authority", "rotate")
    before = [item["authority"]["id"] for item in home.json("registry", "authority", "list")["items"]]
    shutil.rmtree(home.root / "var/lib/netregistry/authority")
    home("registry", "authority", "rotate", "--lost")
    assert [item["signs"] for item in home.json("registry", "authority", "list")["items"]] == [False, False, True]
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    for label in before:
        home("registry", "authority", "retire", label)
    other("registry", "network", "list")


def test_a_copy_is_brought_to_a_new_machine(machines: Machines) -> None:
    """The folder is made, and whoever would let others in is told that the key is missing, until it is back."""
    home, other = machines.home, machines.other
    copy, new = str(home.root / "copy"), Cli(home.root.parent / "new")
    home("registry", "backup", copy)
    (new.root / "run/netregistry").mkdir(parents=True)
    file, keys = new.root / "var/lib/netregistry/registry.sqlite", new.root / "var/lib/netregistry/authority"
    missing = f"({keys}/{home.json('registry', 'authority', 'list')['items'][0]['authority']['id']}.key)"
    assert missing in new("registry", "restore", copy).stderr
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    port = free_port()
    others = Listening((("127.0.0.1", port),), NAMES, str(keys))
    with served(new.root / "run/netregistry", store=SqliteStore(str(file)), others=others) as service:
        for command in (("authority", "list"), ("token", "create", "reader", "ann"), ("status",)):
            assert missing in new("registry", *command).stderr
        text = new("registry", "token", "create", "reader", "ann").stdout.strip()
        said = other("registry", "join", f"https://localhost:{port}", text, status=75).stderr
        assert "journalctl -u netcommon-registry" in said and "TLS 1.3" not in said
        shutil.copytree(home.root / "var/lib/netregistry/authority", keys)
        service.until(lambda: service.service.figures.until > 0)
        for command in (("authority", "list"), ("token", "create", "reader", "bob"), ("status",)):
            assert new("registry", *command).stderr.count("authority") == 0
        other("registry", "join", f"https://localhost:{port}", text)


@pytest.mark.parametrize("text", ["", "node", "node.1.2.3", "root.11111111." + "0" * 32 + "." + "0" * 64, "ü.11111111.x.y"])
def test_what_is_no_token(machines: Machines, text: str) -> None:
    assert "no token" in machines.other("registry", "join", machines.url, text, status=64).stderr


@pytest.mark.parametrize("url", ["http://localhost", "https://", "https://a/b", "https://a:0", "https://a:70000", "https://u@a", "a b"])
def test_what_is_no_address(machines: Machines, url: str) -> None:
    machines.other("registry", "join", url, "reader.11111111." + "0" * 32 + "." + "0" * 64, status=64)


def test_a_certificate_is_renewed_by_who_uses_it(machines: Machines) -> None:
    other = machines.other
    other("registry", "join", machines.url, token(machines, "reader", "ann"))
    path = Path(other.paths.lib) / "certificates/reader/identity.pem"
    key, before = path.read_text().split("-----BEGIN CERTIFICATE-----")
    found: Any = credentials.read(other.paths.lib, "reader")
    other.wall = time.time()  # as at the registry
    old = found._replace(since=0.0, until=other.wall + 60)
    with Folder.make(found.folder) as folder:
        credentials._write(folder, old)
    other("registry", "network", "list")
    again, after = path.read_text().split("-----BEGIN CERTIFICATE-----")
    assert key == again and before != after
    other("registry", "network", "list")
