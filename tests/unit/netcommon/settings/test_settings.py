"""The settings file: defaults without it, every error of it at once and with its line, and where each value comes from."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from netcommon.operations.kinds import KINDS
from netcommon.options.model import DEFAULTS
from netcommon.settings import schema as settings_schema
from netcommon.settings.load import explain, load
from netcommon.settings.model import Settings
from runtime.errors import CONFIG, SettingsInvalid
from runtime.paths import Paths
from tests.support.bootstrap import ROOT
from tests.support.settings import paths_with

EXAMPLE = ROOT / "examples" / "config.toml"


def errors(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(SettingsInvalid) as caught:
        load(paths_with(tmp_path, text))
    assert caught.value.status == CONFIG
    return str(caught.value).split("\n")


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    assert load(paths) == Settings()
    assert {row.source for row in explain(paths)} == {"default"}


def test_every_default_is_acceptable_to_its_own_schema() -> None:
    for key in settings_schema.KEYS:
        default = getattr(Settings(), key.field)
        if default not in ("", {}):
            assert key.kind.read(default) == default, key


def test_every_field_has_a_place_in_the_file() -> None:
    assert {key.field for key in settings_schema.KEYS} == set(Settings._fields) - {"broken", "renamed"}


def test_a_whole_file(tmp_path: Path) -> None:
    paths = paths_with(
        tmp_path,
        """[hook]
timeout = 25          # seconds
service_timeout = 2.5
[rules]
preference = 1000
[custom]
order = "instead"
output_limit = 10
[ganeti]
nic_files = "off"
[log]
facility = "local1"
[bridges.br0]
uplinks = ["eth1", "bond0.5"]
[bridges."br-x"]
uplinks = []
""",
    )
    wanted = Settings(1000, 2.5, 25.0, "instead", 10, "off", {"br0": ("eth1", "bond0.5"), "br-x": ()}, "local1")
    assert load(paths) == wanted
    sources = {row.key: (row.value, row.source) for row in explain(paths)}
    assert sources["hook.timeout"] == (25.0, "config.toml:2")
    assert sources["bridges.br0.uplinks"] == (("eth1", "bond0.5"), "config.toml:14")
    assert sources["bridges.br-x.uplinks"] == ((), "config.toml:16")


def test_what_the_file_leaves_out_is_default(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "[rules]\n\npreference = 7\n")
    assert load(paths) == Settings(rule_preference=7)
    sources = {row.key: row.source for row in explain(paths)}
    assert sources.pop("rules.preference") == "config.toml:3"
    assert set(sources.values()) == {"default"}


def test_all_errors_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    told = errors(
        tmp_path,
        """# a comment
[hook]
timeuot = 3
timeout = "30"

[rulez]
preference = 1
[rules]
preference = 0
[bridges.br0]
uplinks = ["eth1",
  "eth1"]
typo = 1
[bridges.this-name-is-too-long]
uplinks = []
""",
    )
    assert told == [
        "config.toml:3: unknown setting hook.timeuot; did you mean timeout?",
        "config.toml:4: hook.timeout = '30': expected seconds, 1 to 600",
        "config.toml:6: unknown table [rulez]; did you mean rules?",
        "config.toml:9: rules.preference = '0': expected a whole number, 1 to 32765",
        (
            "config.toml:11: bridges.br0.uplinks = '[\\'eth1\\', \\'eth1\\']': "
            'expected a list of interface names such as ["eth1"], each once'
        ),
        "config.toml:13: unknown setting bridges.br0.typo; known: uplinks",
        "config.toml:14: table [bridges.this-name-is-too-long]: 'this-name-is-too-long' is no interface name (at most 15 bytes)",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hook.timeout = true", "hook.timeout = 'True': expected seconds"),
        ("hook.timeout = nan", "expected seconds"),
        ("hook.timeout = inf", "expected seconds"),
        ("hook.timeout = 0.9", "expected seconds"),
        ("hook.service_timeout = 0", "expected seconds"),
        ("rules.preference = 32766", "expected a whole number"),
        ("rules.preference = 5.0", "expected a whole number"),
        ("rules.preference = true", "expected a whole number"),
        ("custom.order = ''", 'expected "after" or "instead"'),
        ("custom.order = ['after']", 'expected "after" or "instead"'),
        ("custom.output_limit = -1", "expected a whole number of bytes"),
        ("ganeti.nic_files = false", 'expected "auto"'),
        ("log.facility = 'kern'", 'expected "daemon"'),
        ("bridges.br0.uplinks = 'eth0'", "expected a list"),
        ("bridges.br0.uplinks = ['a/b']", "expected a list"),
        ("bridges.br0.uplinks = ['']", "expected a list"),
        ("bridges.br0.uplinks = ['..']", "expected a list"),
        ("bridges.br0.uplinks = ['a b']", "expected a list"),
        ("bridges.br0 = 5", "expected a table [bridges.NAME]"),
        ("bridges = 5", "expected a table [bridges]"),
        ("hook = [1]", "expected a table [hook]"),
        ("timeout = 5", "unknown setting timeout; known: agent"),
        ("nic.resolvers = []", "nic.resolvers: expected an option of NICs; resolvers is of a network: [networks.NAME] resolvers in the"),
        ("networks.blue.gateway = '10.0.0.0/24'", "expected an IPv4 address"),
        ("networks.blue.gateway = '2001:db8::1'", "expected an IPv4 address"),
        ("networks.blue.gateway6 = '10.0.0.1'", "expected an IPv6 address"),
        ("networks.blue.resolvers = '10.0.0.53'", "expected a list of at most 16 IPv4 or IPv6 addresses"),
        ("networks.blue.resolvers = ['10.0.0.53', '10.0.0.53']", "expected a list of at most 16 IPv4 or IPv6 addresses"),
        ("networks.blue.resolvers = ['10.0.0.53,10.0.0.54']", "expected a list of at most 16 IPv4 or IPv6 addresses"),
        ("networks.blue.resolvers = [53]", "expected a list of at most 16 IPv4 or IPv6 addresses"),
        (f"networks.blue.resolvers = {[f'10.0.0.{n}' for n in range(1, 18)]}", "expected a list of at most 16"),
        ("networks.blue.search = ['a_b.example']", "expected a list of at most 16 domains"),
        ("networks.blue.search = ['example.com', 'EXAMPLE.com.']", "expected a list of at most 16 domains"),
        ("networks.blue.search = ['']", "expected a list of at most 16 domains"),
        ("networks.blue.search = ['a\\nb']", "expected a list of at most 16 domains"),
        (f"networks.blue.search = {['a' * 60 + f'.example{n}' for n in range(4)]}", "of 255 characters together"),
        ("networks.blue.routes = ['10.1.0.0/16']", "expected a table of at most 16 IPv4 routes"),
        ("networks.blue.routes = { '10.1.0.1/16' = '10.0.0.254' }", "expected a table of at most 16 IPv4 routes"),
        ("networks.blue.routes = { '10.1.0.0/16' = '' }", "expected a table of at most 16 IPv4 routes"),
        ("networks.blue.routes = { '10.1.0.0/16' = ['10.0.0.254'] }", "expected a table of at most 16 IPv4 routes"),
        ("networks.blue.routes = { '2001:db8::/32' = '2001:db8::1' }", "DHCP has none for IPv6"),
        ("dhcp.dnsmasq_folder = '/var/lib/nfdhcpd'", "two of the folders of [dhcp] are one: /var/lib/nfdhcpd, /var/lib/nfdhcpd,"),
        ("networks.blue.mtu = 67", "expected a whole number of bytes, 68 to 65535"),
        ("hook.service_timeout = 31", "hook.service_timeout (31) is more than hook.timeout (30)"),
    ],
)
def test_a_wrong_value_names_line_value_and_expectation(tmp_path: Path, line: str, why: str) -> None:
    (told,) = errors(tmp_path, f"\n# first\n{line}\n")
    assert told.startswith("config.toml:3: ")
    assert why in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[nic]\nspoof_guard = no\n", "config.toml:2: Invalid value in 'spoof_guard = no': a value is true, false, a number or"),
        ("a = 1\n  a = 2\n", "config.toml:2: Cannot overwrite a value in 'a = 2'"),
        ("a = [1,\n\n", "in 'a = [1,'"),
        ('a = "\x1b[2J"\n', r"""in 'a = "\x1b[2J"'"""),
        ('a = "' + "x" * 9999, "... (10004 characters)"),
    ],
)
def test_broken_toml_quotes_its_line(tmp_path: Path, text: str, said: str) -> None:
    (told,) = errors(tmp_path, text)
    assert said in told and told.isprintable() and len(told) < 300


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[hook]\ntimeout = \n", 2),
        ("[hook\n", 1),
        ("[hook]\ntimeout = 3\ntimeout = 4\n", 3),
        ('[log]\n\nfacility = """x\n', 3),
        (b"[log]\nfacility = '\xff'\n", 2),
        ("a = " + "[" * 100000, 1),
    ],
)
def test_broken_toml_names_its_line(tmp_path: Path, text: str | bytes, line: int) -> None:
    (told,) = errors(tmp_path, text)
    assert told.startswith(f"config.toml:{line}: ")


def test_lines_are_found_behind_long_values_and_quoted_keys(tmp_path: Path) -> None:
    text = (
        '[bridges]\nbr0.uplinks = [ # [hook]\n"eth0",\n]\nbr1 = {uplinks = 3}\n"br 2".uplinks = []\n[\'hook\']\n"timeout" = """\nx"""\r\n'
    )
    told = errors(tmp_path, text)
    assert [line.split(" ", 1)[0] for line in told] == ["config.toml:5:", "config.toml:6:", "config.toml:8:"]


def test_values_cannot_forge_lines(tmp_path: Path) -> None:
    told = errors(tmp_path, '"a\\nb" = 1\n[custom]\norder = "x\\u001b[2J\\nconfig.toml:1: fine"\n')
    assert len(told) == 2
    assert all(line.isprintable() for line in told)


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    paths = paths_with(tmp_path, "")
    os.chmod(paths.config, mode)
    with pytest.raises(SettingsInvalid, match="chmod go-w"):
        load(paths)
    os.chmod(paths.config, 0o644)
    assert load(paths) == Settings()


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "")
    os.chown(paths.config, 4711, 0)
    with pytest.raises(SettingsInvalid, match="owned by user 4711"):
        load(paths)


def test_a_group_that_can_write_must_be_roots(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "")
    os.chmod(paths.config, 0o664)
    assert load(paths) == Settings()
    os.chown(paths.config, 0, 4711)
    with pytest.raises(SettingsInvalid, match="written by others"):
        load(paths)


def test_every_folder_on_the_way_is_looked_at(tmp_path: Path) -> None:
    """Also those that a link leads through: whoever can write one can put another file there."""
    paths = paths_with(tmp_path, "[nic]\nspoof_guard = false\n")
    folder = Path(paths.config).parent
    folder.chmod(0o777)
    with pytest.raises(SettingsInvalid, match=f"{folder} can be written by everybody"):
        load(paths)
    folder.chmod(0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    Path(paths.config).rename(tmp_path / "open/config.toml")
    os.symlink(tmp_path / "open/config.toml", paths.config)
    with pytest.raises(SettingsInvalid, match="open can be written by everybody"):
        load(paths)
    (tmp_path / "open").chmod(0o755)
    assert not load(paths).nic["spoof_guard"]


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "")
    os.unlink(paths.config)
    os.mkfifo(paths.config)
    with pytest.raises(SettingsInvalid, match="not a regular file"):
        load(paths)
    os.unlink(paths.config)
    os.mkdir(paths.config)
    with pytest.raises(SettingsInvalid):
        load(paths)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, b"#" * (1 << 21))
    with pytest.raises(SettingsInvalid, match="larger than"):
        load(paths)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "x = 1")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SettingsInvalid):
        load(paths)
    assert os.listdir("/proc/self/fd") == before


def test_without_a_file_neither_tomllib_nor_the_schema_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.settings.load import load; from runtime.paths import Paths\n"
        "load(Paths.under(sys.argv[2]))\n"
        "print([name for name in ('tomllib', 'netcommon.settings.parse', 'difflib') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


class TestExample:
    def test_it_parses_as_it_is(self, tmp_path: Path) -> None:
        assert load(paths_with(tmp_path, EXAMPLE.read_bytes())) == Settings()

    def test_uncommented_it_says_the_defaults_and_names_every_setting(self, tmp_path: Path) -> None:
        lines = [line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in EXAMPLE.read_text().splitlines()]
        text = "\n".join(lines)
        named = {(table, name) for table, body in tomllib.loads(text).items() for name in body}
        some = {"bridges.*": "bridges.br0", "networks.*": "networks.blue", "extensions.*": "extensions.storage"}
        assert named == {tuple(f"{some.get(key.table, key.table)}.{key.name}".split(".")[:2]) for key in settings_schema.KEYS}
        read = load(paths_with(tmp_path, text))
        options = DEFAULTS._asdict()
        repair = dict.fromkeys(KINDS, "on")
        networks = {"blue": {"isolated": True}}
        fields = {"gateway": "10.0.0.1", "gateway6": "2001:db8::1", "resolvers": ("10.0.0.53", "2001:db8::53"), "search": ("example.com",)}
        told = {"blue": {**fields, "routes": {"10.1.0.0/16": "10.0.0.254"}, "mtu": 1400}}
        storage = {"storage": {"adds": "mode", "parameters": {"address": "198.51.100.1", "mtu": 9000}}}
        assert read == Settings(
            custom_order="after",
            uplinks={"br0": ("eth1",)},
            nic=options,
            networks=networks,
            network_fields=told,
            repair=repair,
            extensions=storage,
        )
