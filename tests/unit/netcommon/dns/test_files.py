"""The key file, the store, Ganeti's own files and the settings of the DNS."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from netcommon.dns import key
from netcommon.dns.ganeti import Instances, configured, is_master
from netcommon.dns.guest import Event, Guest, Nic
from netcommon.dns.records import Policy
from netcommon.dns.store import Intent, Store
from netcommon.dns.sync import pending, record
from netcommon.settings.load import load
from runtime.errors import HostRefused, NicInvalid, SettingsInvalid, TryAgain
from runtime.locks import Locks
from runtime.paths import Paths
from tests.support.ganeti_event import CLUSTER, configuration, nic

POLICY = Policy(("example.com", "2.0.192.in-addr.arpa"), other_nics="{host}-eth{index}")
WEB = Guest("web.example.com", CLUSTER, (Nic("192.0.2.10"),))
TSIG = 'key "gnt." {\n\talgorithm hmac-sha512;\n\tsecret "YS8vYg==";\n};\n'


class TestKey:
    @pytest.mark.parametrize(
        "text",
        [
            TSIG,
            "# made by hand\n// twice\nkey gnt { secret YS8vYg==; algorithm HMAC-SHA512; };",
            'key "GNT" {algorithm "hmac-sha512";secret "YS8vYg==";};',
        ],
    )
    def test_as_tsig_keygen_writes_it(self, text: str) -> None:
        assert key.parse(text, "f") == key.Key("gnt", "hmac-sha512", b"a//b")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "YS8vYg==",
            TSIG.replace("hmac-sha512", "hmac-md5"),
            TSIG.replace("YS8vYg==", "not base64!"),
            TSIG.replace("YS8vYg==", ""),
            TSIG.replace('"gnt."', '"a b"'),
            TSIG.replace("algorithm hmac-sha512;", ""),
            TSIG.replace("algorithm", "secret"),
            TSIG + TSIG,
            TSIG[:-4],
        ],
    )
    def test_anything_else_is_refused_without_telling_what_it_is(self, text: str) -> None:
        with pytest.raises(SettingsInvalid) as caught:
            key.parse(text, "/etc/netcommon/dns.key")
        assert str(caught.value).startswith("dns.key_file: /etc/netcommon/dns.key: ")
        assert "YS8vYg" not in str(caught.value) and "base64!" not in str(caught.value)

    def test_a_key_does_not_show_its_secret(self) -> None:
        assert "a//b" not in repr(key.parse(TSIG, "f")) + str(key.parse(TSIG, "f"))

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
    def test_only_root_can_read_it(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "dns.key"
        path.write_text(TSIG)
        path.chmod(0o600)
        assert key.read(str(path)).name == "gnt"
        path.chmod(mode)
        with pytest.raises(SettingsInvalid, match="chmod 600"):
            key.read(str(path))
        path.chmod(0o600)
        os.chown(path, 4711, 0)
        with pytest.raises(SettingsInvalid, match="owned by user 4711"):
            key.read(str(path))

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for name, why in (("none", "No such file"), ("pipe", "not a regular file"), (".", "not a regular file")):
            with pytest.raises(SettingsInvalid, match=why):
                key.read(str(tmp_path / name))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "dns"), lambda folder: Locks(folder, time.monotonic(), time.monotonic, time.sleep))


class TestStore:
    def test_what_is_written_is_read(self, store: Store, tmp_path: Path) -> None:
        intent = Intent(WEB, ("web.example.com",), ("old.example.com",), True, "why")
        store.write(intent)
        assert store.read(WEB.name) == intent
        assert (tmp_path / "dns/web.example.com.json").stat().st_mode & 0o777 == 0o600
        store.remove(WEB.name)
        assert store.read(WEB.name) is None and store.names() == []

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1}', "\udcff", '{"version": 1, "names": ["/x"]}'])
    def test_what_cannot_be_read_counts_for_nothing_and_is_said(self, store: Store, tmp_path: Path, text: str) -> None:
        path = tmp_path / "dns/web.example.com.json"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        path.chmod(0o600)
        assert store.read(WEB.name) is None
        assert len(store.problems) == 1
        assert pending(store) == []
        record(store, Event(WEB), POLICY)
        assert pending(store) == [WEB.name]

    def test_a_newer_intent_is_not_called_done(self, store: Store) -> None:
        old = Intent(WEB, ("web.example.com",))
        newer = old._replace(guest=WEB._replace(nics=()))
        store.write(newer)
        store.finish(old, old._replace(done=True))
        assert store.read(WEB.name) == newer
        store.finish(newer, None)
        assert store.read(WEB.name) is None

    def test_one_works_on_an_instance_at_a_time(self, store: Store) -> None:
        with store.locked(WEB.name), pytest.raises(TryAgain, match="held"):
            store.locked(WEB.name)
        store.locked(WEB.name).release()


class TestRecord:
    def test_every_name_that_may_have_records_is_kept(self, store: Store) -> None:
        record(store, Event(WEB), POLICY)
        record(store, Event(WEB._replace(nics=(Nic("192.0.2.11"),))), POLICY)
        found = store.read(WEB.name)
        assert found is not None and not found.done
        assert found.names == ("10.2.0.192.in-addr.arpa", "11.2.0.192.in-addr.arpa", "web.example.com")

    def test_a_rename_takes_names_and_former_names_along(self, store: Store) -> None:
        record(store, Event(WEB), POLICY)
        for former, name in (("web.example.com", "b.example.com"), ("b.example.com", "c.example.com")):
            record(store, Event(WEB._replace(name=name), former), POLICY)
        assert store.names() == ["c.example.com"]
        found = store.read("c.example.com")
        assert found is not None and found.former == ("web.example.com", "b.example.com")
        assert {"web.example.com", "b.example.com", "c.example.com", "10.2.0.192.in-addr.arpa"} == set(found.names)

    def test_a_rename_there_and_back(self, store: Store) -> None:
        record(store, Event(WEB), POLICY)
        record(store, Event(WEB._replace(name="b.example.com"), "web.example.com"), POLICY)
        record(store, Event(WEB, "b.example.com"), POLICY)
        found = store.read(WEB.name)
        assert found is not None and found.former == ("b.example.com",)

    def test_a_name_in_use_again_inherits_what_is_left_under_it(self, store: Store) -> None:
        record(store, Event(WEB), POLICY)
        record(store, Event(WEB._replace(name="b.example.com", nics=()), "web.example.com"), POLICY)
        record(store, Event(WEB._replace(nics=(Nic("192.0.2.12"),))), POLICY)
        found = store.read(WEB.name)
        assert found is not None and "10.2.0.192.in-addr.arpa" in found.names

    def test_what_is_refused_changes_nothing(self, store: Store) -> None:
        with pytest.raises(NicInvalid):
            record(store, Event(WEB._replace(name="x" * 60 + ".example.com", nics=(Nic(), Nic("192.0.2.1")))), POLICY)
        assert store.names() == []


class TestGaneti:
    def test_its_configuration(self, tmp_path: Path) -> None:
        assert configured(str(tmp_path)) is None
        nics = [nic("192.0.2.10", NETWORK_SUBNET6="2001:db8::/64"), nic()]
        (tmp_path / "config.data").write_text(configuration({"web.example.com": nics, "bad_name": []}))
        first = Nic("192.0.2.10", "aa:00:00:00:00:00", "2001:db8::/64")
        made = configured(str(tmp_path))
        assert made == Instances({"web.example.com": WEB._replace(nics=(first, Nic("", "aa:00:00:00:00:01")))}, frozenset({"bad_name"}))

    @pytest.mark.parametrize("nics", [[{"ip": "192.0.2.1"}], [{"mac": "aa:00:00:00:00:01"}, None], None, 5])
    def test_an_instance_that_is_not_as_ganeti_writes_it_keeps_no_other_from_the_dns(self, tmp_path: Path, nics: object) -> None:
        document = json.loads(configuration({"web.example.com": [nic("192.0.2.10")], "Bad.example.com": [nic("192.0.2.11")]}))
        document["instances"]["uuid-1"]["nics"] = nics
        document["instances"]["uuid-2"] = {"nics": []}
        document["instances"]["uuid-3"] = None
        (tmp_path / "config.data").write_text(json.dumps(document))
        made = configured(str(tmp_path))
        assert made is not None and list(made.guests) == ["web.example.com"] and made.unread == {"bad.example.com"} and made.nameless == 2
        assert len(made.passed_over) == 3 and "Bad.example.com" in made.passed_over[0] and "uuid-2" in made.passed_over[1]
        assert made.may_have("bad.example.com") and made.may_have("whatever.example.com")
        assert not made._replace(nameless=0).may_have("whatever.example.com")

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"cluster": {"cluster_name": "c"}, "networks": {}, "instances": []})])
    def test_another_form_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.data").write_text(text)
        with pytest.raises(HostRefused, match=r"config\.data"):
            configured(str(tmp_path))

    def test_who_the_master_is(self, tmp_path: Path) -> None:
        folder, here = str(tmp_path), os.uname().nodename
        assert is_master(here, folder)
        assert not is_master("", folder)
        assert not is_master("x" + here, folder)
        assert not is_master("other.example", folder)


class TestSettings:
    def test_a_whole_table(self, tmp_path: Path) -> None:
        paths = Paths.under(str(tmp_path))
        os.makedirs(paths.etc)
        Path(paths.config).write_text(
            '[dns]\nservers = ["192.0.2.53", "192.0.2.54:5353", "2001:DB8::53", "[2001:db8::54]:54"]\n'
            'zones = ["Example.COM.", "0/26.2.0.192.in-addr.arpa"]\nother_nics = ""\n'
        )
        read = load(paths)
        assert read.dns_servers == ("192.0.2.53:53", "192.0.2.54:5353", "[2001:db8::53]:53", "[2001:db8::54]:54")
        assert read.dns_zones == ("example.com", "0/26.2.0.192.in-addr.arpa")

    @pytest.mark.parametrize(
        "line",
        [
            "servers = '192.0.2.53'",
            "servers = ['ns.example.com']",
            "servers = ['192.0.2.53:0']",
            "servers = ['192.0.2.53:65536']",
            "servers = ['192.0.2.53', '192.0.2.53:53']",
            "servers = ['[192.0.2.53]:53']",
            "servers = ['[::1']",
            "servers = [53]",
            "zones = ['a b']",
            "zones = ['']",
            "zones = ['.']",
            "zones = ['example.com', 'EXAMPLE.com.']",
            "key_file = 'dns.key'",
            "timeout = 0",
            "ttl = -1",
            "domain = '.'",
            "other_nics = 'eth{index}'",
            "other_nics = '{host}.{index}'",
            "other_nics = '{host}_{index}'",
            "other_nics = '{host}-{name}'",
            "eui64 = 1",
        ],
    )
    def test_wrong_values(self, tmp_path: Path, line: str) -> None:
        paths = Paths.under(str(tmp_path))
        os.makedirs(paths.etc)
        Path(paths.config).write_text(f"[dns]\n{line}\n")
        with pytest.raises(SettingsInvalid, match=r"config\.toml:2: dns\." + line.split(" ", maxsplit=1)[0]):
            load(paths)
