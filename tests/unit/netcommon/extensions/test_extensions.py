"""The site's own modes, features and operations: what is loaded, what is refused, and what becomes of NICs without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import netcommon
from netcommon import extension_loader, moved_names
from netcommon.features import extension_check
from netcommon.host.api.facts import AF_INET, Route
from netcommon.lifecycle.check import check, repair
from netcommon.operations import unusable
from netcommon.options.model import DEFAULTS
from netcommon.plan.planner import plan
from netcommon.settings import load as load_module
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime import modules
from runtime.errors import HostRefused, NicInvalid, SettingsInvalid
from runtime.nic import Nic
from runtime.paths import Paths
from tests.support.bootstrap import ROOT
from tests.support.cli import Cli, equipped
from tests.support.netns import wait_until
from tests.support.sim import BASE, MODES, UUIDS, Sim, nic

EXAMPLE = ROOT / "examples" / "site-extension" / "storage.py"
TABLE = {"storage": {"adds": "mode", "parameters": {"address": "198.51.100.1", "mtu": 9000}}}
SETTINGS = Settings(service_timeout=2, hook_timeout=5, extensions=TABLE)
STORAGE = {"MODE": "ext", "LINK": "storage", "IP": "198.51.100.20"}
FEATURE = Settings(service_timeout=2, hook_timeout=5, extensions={"extra": {"adds": "feature"}})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The site's folder; what was loaded from it is forgotten at the end."""
    made = tmp_path / "etc" / "netcommon" / "extensions"
    made.mkdir(parents=True)
    shutil.copy(EXAMPLE, made)
    yield made
    modules.allow((), "")
    for name in [name for name in sys.modules if name.startswith("netcommon.extensions.")]:
        del sys.modules[name]


@pytest.fixture
def sim(tmp_path: Path, folder: Path) -> Sim:
    made = Sim(str(tmp_path), SETTINGS)
    modules.allow(SETTINGS.extensions, str(folder))
    return made


def storage(**changes: str) -> Nic:
    return nic("ext", **{**STORAGE, **changes})


def good(sim: Sim) -> bool:
    return check(sim.node, sim.host.view(), sim.record()).good


class TestExample:
    def test_up_check_repair_down(self, sim: Sim) -> None:
        sim.up(storage())
        link = sim.host.kernel.named("tap0")
        assert link and link.mtu == 9000 and good(sim)
        sim.host.kernel.links[link.index] = link._replace(mtu=1500)
        assert not good(sim)
        assert repair(sim.node, sim.record().key, sim.call()).changed and good(sim)
        assert not sim.up(storage()).changed
        sim.down(storage())
        assert sim.picture() == sim.before and sim.files() == []

    def test_gc(self, sim: Sim) -> None:
        sim.up(storage())
        sim.host.remove_link("tap0")
        assert [found.action for found in sim.gc()] == ["removed"]
        assert sim.files() == []

    def test_it_speaks_of_the_variable(self, sim: Sim) -> None:
        with pytest.raises(NicInvalid, match="IP='': expected the guest's IPv4 address"):
            sim.up(storage(IP=""))
        assert sim.picture() == sim.before and sim.files() == []

    def test_another_link_is_left_to_the_sites_scripts(self, sim: Sim) -> None:
        assert plan(nic("ext"), SETTINGS) == []

    def test_the_settings_are_passed_through_the_file_and_what_is_kept_of_it(self, tmp_path: Path, folder: Path) -> None:
        paths = Paths.under(str(tmp_path))
        text = '[extensions.storage]\nadds = "mode"\nparameters = { address = "198.51.100.1", mtu = 9000 }\n'
        Path(paths.config).write_text(text)
        Path(paths.state).mkdir(parents=True, mode=0o755)
        os.utime(paths.config, (1e9, 1e9))
        for _ in range(2):
            assert load(paths).extensions == TABLE
        assert {"storage": str(folder)} == modules.EXTENSIONS


class TestGone:
    """The extension is not there any more: nothing is lost, and every command says what to do."""

    def test_a_down_keeps_what_only_it_can_undo(self, sim: Sim) -> None:
        sim.up(storage())
        kept = [stored for stored in sim.record().operations if stored["kind"] == "storage/mtu"]
        modules.allow((), "")
        for _ in range(2):
            with pytest.raises(HostRefused, match=r"put the table \[extensions.storage\] back"):
                sim.down(storage())
            assert list(sim.record().operations) == kept
        modules.allow(SETTINGS.extensions, str(sim.paths.extensions))
        sim.down(storage())
        assert sim.picture() == sim.before and sim.files() == []

    def test_check_says_so(self, sim: Sim) -> None:
        sim.up(storage())
        modules.allow((), "")
        report = check(sim.node, sim.host.view(), sim.record())
        assert not report.good and report.unknown == ("storage/mtu",)

    def test_gc_removes_nothing_that_it_may_have_made(self, sim: Sim, folder: Path) -> None:
        """A route of the site's own kind bears our mark; without the extension no other kind may take it for nobody's."""
        (folder / "storage.py").write_text(OWN_ROUTE)
        sim.up(storage())
        route = Route(AF_INET, 254, "198.51.100.20/32", sim.index("tap0"))
        assert route in sim.host.kernel.routes and good(sim)
        assert sim.gc() == []
        modules.allow((), "")
        found = sim.gc()
        assert {one.action for one in found} == {"kept"} and "does not know" in found[0].why
        assert route in sim.host.kernel.routes
        modules.allow(SETTINGS.extensions, str(folder))
        sim.down(storage())
        assert sim.picture() == sim.before

    def test_one_that_is_broken_keeps_gc_from_nothing_else(self, sim: Sim, folder: Path) -> None:
        sim.tap("tap1")
        sim.up(storage())
        sim.up(nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1"))
        (folder / "storage.py").write_text("raise ValueError\n")
        del sys.modules["netcommon.extensions.storage"]
        sim.host.remove_link("tap1")
        assert [found.action for found in sim.gc() if "tap1" in found.text] == ["removed"]
        assert [record.device for record in sim.records()] == ["tap0"]

    def test_one_that_cannot_say_what_is_its_own_ends_gc_before_anything_goes(self, sim: Sim, folder: Path) -> None:
        text = EXAMPLE.read_text() + "\n\nFixedMtu.owned = classmethod(lambda cls, view: 1 // 0)\n"
        (folder / "storage.py").write_text(text)
        sim.up(storage())
        before = sim.picture()
        with pytest.raises(HostRefused, match="storage/mtu cannot be told: ZeroDivisionError"):
            sim.gc()
        assert sim.picture() == before

    def test_a_second_up_of_another_mode_keeps_it_on_record(self, sim: Sim) -> None:
        sim.up(storage())
        modules.allow((), "")
        sim.node.store.write(sim.record())
        changed = Sim.up(sim_without(sim), nic("routed"))
        assert changed.changed and "storage/mtu" in [stored["kind"] for stored in sim.record().operations]


def sim_without(sim: Sim) -> Sim:
    """The same machine after the settings have changed."""
    sim.settings = Settings(service_timeout=2, hook_timeout=5)
    return sim


OWN_ROUTE = EXAMPLE.read_text().replace("        GuestRoute(AF_INET", "        OwnRoute(AF_INET")
OWN_ROUTE = OWN_ROUTE.replace(
    "OPERATIONS = (FixedMtu,)",
    """class OwnRoute(GuestRoute):
    __slots__ = ()
    KIND = "storage/route"


OPERATIONS = (FixedMtu, OwnRoute)""",
)


class TestFeature:
    PLAN = """from netcommon.features.base import Part
from netcommon.operations.sysctl import DeviceSysctl


def plan(nic, settings, options):
"""
    GOOD = PLAN + '    return Part(before=(DeviceSysctl(10, nic.interface, "disable_ipv6", "1"),))\n'
    ODD = """    return Part(before=(Odd(2, nic.interface, "x", "1"),))
class Odd(DeviceSysctl):
    KIND = "{}"
"""

    @pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch"])
    def test_it_is_added_to_every_mode(self, tmp_path: Path, folder: Path, mode: str) -> None:
        (folder / "extra.py").write_text(self.GOOD)
        modules.allow(FEATURE.extensions, str(folder))
        sim = Sim(str(tmp_path), FEATURE)
        sim.up(nic(mode))
        assert sim.host.kernel.settings.get("net/ipv6/conf/tap0/disable_ipv6") == "1" and good(sim)
        sim.down(nic(mode))
        assert sim.picture() == sim.before

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("    return []\n", "planned list: a feature plans a Part"),
            ("    return Part(before=(1,))\n", "planned int: expected an operation"),
            ("    return None.x\n", "AttributeError: 'NoneType' object has no attribute 'x' (.*extra.py:6)"),
            ("    return Part(before=(DeviceSysctl(10, nic.interface, 3, []),))\n", "field 'name' is not as we know it"),
            (ODD.format("odd"), "unknown kind 'odd'"),
            (ODD.format("extra/odd"), "the extension extra does not have it any more"),
        ],
    )  # fmt: skip
    def test_what_no_record_could_hold_is_refused_before_anything_is_touched(
        self, tmp_path: Path, folder: Path, body: str, said: str
    ) -> None:
        (folder / "extra.py").write_text(self.PLAN + body)
        modules.allow(FEATURE.extensions, str(folder))
        sim = Sim(str(tmp_path), FEATURE)
        with pytest.raises(SettingsInvalid, match=f"(?s)the extension extra.*{said}"):
            sim.up(nic("bridged"))
        assert sim.picture() == sim.before and sim.files() == []


class TestLoading:
    @pytest.mark.parametrize("name", ["json", "os", "extended"])
    def test_no_module_of_pythons_or_ours_is_taken_for_it(self, folder: Path, name: str) -> None:
        (folder / f"{name}.py").write_text("def plan(nic, settings, options):\n    return []\n")
        modules.allow((name,), str(folder))
        settings = Settings(extensions={name: {"adds": "mode"}})
        assert extension_check.operations(nic("ext"), settings, DEFAULTS) == []
        assert sys.modules[f"netcommon.extensions.{name}"].__file__ == str(folder / f"{name}.py")

    @pytest.mark.parametrize("fails", [False, True])
    def test_threads_that_ask_while_another_loads_it_get_all_of_it(self, folder: Path, fails: bool) -> None:
        """The agent's threads serve hooks: after its start, the first guests of many come at once."""
        last = "raise ValueError('at its end')" if fails else "def plan(nic, settings, options):\n    return []"
        (folder / "slow.py").write_text(f"import netcommon.told\nnetcommon.told.arrived()\n{last}\n")
        modules.allow(("slow",), str(folder))
        begun, seen = threading.Event(), list[str]()
        threads = [threading.Thread(target=self._ask, args=(seen,)) for _ in range(4)]

        def arrived() -> None:
            if begun.is_set():
                return  # where it fails each tries it by itself
            begun.set()
            wait_until(lambda: all(self._within(thread, extension_loader.__file__) for thread in threads[1:]) or len(seen) == 3, 10)

        told: Any = ModuleType("netcommon.told")
        told.arrived = arrived
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "netcommon.told", told)
            patch.setattr(netcommon, "told", told, raising=False)
            threads[0].start()
            assert begun.wait(10)
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(10)
        expected = "the extension slow cannot be loaded: ValueError: at its end" if fails else "[]"
        assert [said[: len(expected)] for said in seen] == [expected] * 4

    def test_whoever_reads_the_settings_last_says_which_may_be_loaded(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One of the agent's threads has read the file as it was before it was changed, and goes on after one that reads it now."""
        old, new = Settings(), SETTINGS
        first = threading.Thread(target=load, args=(Paths(),))
        second = threading.Thread(target=load, args=(Paths(),))

        def read(_paths: Paths) -> Settings:
            if threading.current_thread() is second:
                return new
            second.start()
            wait_until(lambda: not second.is_alive() or self._within(second, load_module.__file__), 10)
            second.join(0.1)
            return old

        monkeypatch.setattr(load_module, "_load", read)
        first.start()
        first.join(10)
        second.join(10)
        assert list(modules.EXTENSIONS) == list(new.extensions)

    @staticmethod
    def _ask(seen: list[str]) -> None:
        try:
            seen.append(str(extension_check.operations(nic("ext"), Settings(extensions={"slow": {"adds": "mode"}}), DEFAULTS)))
        except SettingsInvalid as error:
            seen.append(str(error))

    @staticmethod
    def _within(thread: threading.Thread, file: str) -> bool:
        """Tell whether the thread runs a function of this file."""
        frame = sys._current_frames().get(thread.ident or 0)
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back
        return frame is not None

    def test_a_package_and_its_parts(self, folder: Path) -> None:
        (folder / "parted").mkdir()
        (folder / "parted" / "__init__.py").write_text("from netcommon.extensions.parted.inner import plan\n")
        (folder / "parted" / "inner.py").write_text("def plan(nic, settings, options):\n    return []\n")
        modules.allow(("parted",), str(folder))
        assert extension_check.operations(nic("ext"), Settings(extensions={"parted": {"adds": "mode"}}), DEFAULTS) == []
        (folder / "parted" / "inner.py").chmod(0o666)
        for loaded in ("parted", "parted.inner"):
            del sys.modules[f"netcommon.extensions.{loaded}"]
        with pytest.raises(SettingsInvalid, match=r"inner\.py can be written by everybody"):
            plan(nic("ext"), Settings(extensions={"parted": {"adds": "mode"}}))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[extensions.Storage-1]\nadds = 'mode'\n", "config.toml:1: table [extensions.Storage-1]: 'Storage-1' is no name of a module"),
            ("[extensions.'../x']\nadds = 'mode'\n", "is no name of a module"),
            ("[extensions.a]\n", "config.toml:1: table [extensions.a]: expected adds = \"mode\" or \"feature\""),
            ("[extensions.a]\nadds = 'script'\n", "config.toml:2: extensions.a.adds = 'script': expected"),
            ("[extensions.a]\nadds = 'mode'\nparameters = { x = { y = 1 } }\n", "config.toml:3: extensions.a.parameters = "),
            ("[extensions.a]\nadds = 'mode'\nparameters = { x = nan }\n", "config.toml:3: extensions.a.parameters = "),
            ("extensions = 1\n", "expected a table [extensions]"),
        ],
    )  # fmt: skip
    def test_the_settings_are_checked(self, tmp_path: Path, folder: Path, text: str, said: str) -> None:
        paths = Paths.under(str(tmp_path))
        Path(paths.config).write_text(text)
        with pytest.raises(SettingsInvalid) as caught:
            load(paths)
        assert said in str(caught.value)

    @pytest.mark.parametrize("kind", ["json/dumps", "storage/", "/mtu", "storage/../mtu", "../storage/mtu", "storage.x/mtu"])
    def test_no_record_makes_a_module_be_loaded_that_the_settings_do_not_name(self, sim: Sim, kind: str) -> None:
        before = set(sys.modules)
        assert "kind" in unusable({"kind": kind, "device": "tap0"})
        assert {name for name in set(sys.modules) - before if "json" in name or ".." in name} == set()

    def test_nothing_is_written_into_the_sites_folder(self, sim: Sim, folder: Path) -> None:
        sim.up(storage())
        assert os.listdir(folder) == ["storage.py"]


class TestCommands:
    """From the settings file on, with several NICs at once."""

    @pytest.fixture
    def cli(self, tmp_path: Path, folder: Path) -> Cli:
        made = equipped(tmp_path)
        Path(made.paths.config).write_text('[extensions.storage]\nadds = "mode"\n')
        for number in (0, 1):
            which = ("--interface", f"tap{number}", "--ip", f"192.0.2.{number + 9}", "--mac", f"aa:00:00:00:00:{number:02x}")
            made("define", *which, "--mode", "ext", "--link", "storage")
        return made

    def test_many_at_once(self, cli: Cli) -> None:
        cli("up", "--all")
        assert [row["good"] for row in cli.json("check")] == [True, True]
        assert {link.mtu for link in cli.host.view().links() if link.name.startswith("tap")} == {9000}
        assert "9000" in cli("explain", "tap0").stdout and "tap1" in cli("tree").stdout
        cli("down", "--all", "--force")
        assert {row["state"] for row in cli.json("list")} == {"defined"}
        assert {link.mtu for link in cli.host.view().links() if link.name.startswith("tap")} == {1500}

    def test_doctor_looks_at_it(self, cli: Cli, folder: Path) -> None:
        said = {one["topic"]: one for one in cli.json("doctor", status=None)}["extensions"]
        assert (said["level"], said["text"]) == ("ok", "storage can be used; its own operations: storage/mtu")
        (folder / "storage.py").chmod(0o666)
        del sys.modules["netcommon.extensions.storage"]
        said = {one["topic"]: one for one in cli.json("doctor", status=1)}["extensions"]
        assert said["level"] == "error" and "can be written by everybody" in said["text"]

    def test_one_that_is_not_there_is_refused_before_anything_is_touched(self, cli: Cli, folder: Path) -> None:
        (folder / "storage.py").unlink()
        said = cli("up", "--all", status=78).stderr
        assert f"put storage.py into {folder}" in said and cli.json("check") == []


def test_a_node_without_extensions_loads_nothing_of_it(tmp_path: Path) -> None:
    """As a cold hook runs: settings with a file, a plan in each mode, and operations read back."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.operations import from_json; from netcommon.operations.base import to_json\n"
        "from netcommon.plan.planner import plan; from netcommon.settings.load import load; from runtime.paths import Paths\n"
        "from runtime.environment import nic_from_environment as nic\n"
        "settings = load(Paths.under(sys.argv[2]))\n"
        f"made = [plan(nic({{**{BASE!r}, **mode}}), settings) for mode in {list(MODES.values())!r}]\n"
        "assert all(from_json(to_json(one)) == one for each in made for one in each)\n"
        "print([name for name in sys.modules if 'exten' in name or 'importlib.metadata' in name or name == 'runtime.trust'])"
    )
    os.makedirs(tmp_path / "etc" / "netcommon")
    (tmp_path / "etc" / "netcommon" / "config.toml").write_text("[hook]\ntimeout = 20\n")
    subprocess.run([sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path)], check=True)  # now its file is kept, if it can be
    ran = subprocess.run([sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path)], capture_output=True, text=True, check=True)
    assert [name for name in eval(ran.stdout) if name != "netcommon.settings.types"] in ([], ["runtime.trust"])  # noqa: S307 - ours


class TestOldNames:
    """An extension of version 0.1 goes on working: its imports are of modules that have moved since."""

    @pytest.mark.parametrize(("old", "new"), sorted(moved_names.MOVED.items()))
    def test_a_module(self, sim: Sim, folder: Path, old: str, new: str) -> None:
        loaded = self._loaded(sim, folder, f"import {old} as there\nfrom {new} import __name__ as name")
        theirs, ours = vars(loaded.there), vars(modules.load(new))
        assert loaded.name == new and theirs["__name__"] == old
        assert [name for name in ours if not name.startswith("__") and theirs[name] is not ours[name]] == []

    def test_what_was_a_module_and_is_a_package(self, sim: Sim, folder: Path) -> None:
        loaded = self._loaded(
            sim,
            folder,
            """
from netcommon.host.nftables import INGRESS, NftRule
from netcommon.operations.guard import NicGuard
from netcommon.options import Options, is_communication, options_of
from netcommon.modes.common import alias
from netcommon.tags import given
from netcommon.operations.guard_counters import dropped
from netcommon.plan import plan as planned
from netcommon.settings import Settings
""",
        )
        assert loaded.Options is type(DEFAULTS) and loaded.Settings is Settings and loaded.planned is plan
        assert not loaded.is_communication(nic("bridged")) and loaded.alias(nic("bridged")).device == "tap0"

    def test_what_never_was_is_told_apart(self, sim: Sim, folder: Path) -> None:
        with pytest.raises(SettingsInvalid, match="cannot import name 'Nothing'"):
            self._loaded(sim, folder, "from netcommon.options import Nothing")
        with pytest.raises(SettingsInvalid, match=r"No module named 'netcommon\.host\.nothing'"):
            self._loaded(sim, folder, "import netcommon.host.nothing")

    def _loaded(self, sim: Sim, folder: Path, text: str) -> Any:
        (folder / "storage.py").write_text(text)
        return extension_loader.load("storage")


@pytest.mark.parametrize("text", ["class Odd: pass", "class Odd: KIND = 'other/odd'", "class Odd: KIND = 7", "Odd = 'storage/odd'"])
def test_operations_without_a_kind_of_their_own(sim: Sim, folder: Path, text: str) -> None:
    """Whoever asks for them is told so: check, doctor and downs of all NICs ask."""
    (folder / "storage.py").write_text(f"{text}\nOPERATIONS = (Odd,)\n")
    with pytest.raises(SettingsInvalid, match="in OPERATIONS has no KIND of the form storage/NAME"):
        extension_loader.operations("storage")
