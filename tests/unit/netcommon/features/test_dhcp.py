"""What DHCP servers are told of a NIC: the templates and what they are given."""

from __future__ import annotations

import pytest
from hypothesis import given

from netcommon.effects.reload import Reload
from netcommon.features import dhcp
from netcommon.features.base import Part
from netcommon.host.api.facts import FILE_MARK
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations.file import NicFile
from netcommon.operations.network_file import NetworkFile
from netcommon.options.model import Options
from netcommon.options.networks import NetworkFields, fields_of
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NicInvalid, SettingsInvalid
from runtime.nic import Nic
from tests.support.nics import valid_environments
from tests.support.sim import BASE, UUIDS

NETWORK = {
    "NETWORK_NAME": "blue",
    "NETWORK_SUBNET": "10.0.0.0/24",
    "NETWORK_GATEWAY": "10.0.0.1",
    "NETWORK_SUBNET6": "2001:db8::/64",
    "NETWORK_GATEWAY6": "2001:db8::1",
}
#: What dnsmasq 2.90 takes for something else than a host name (dhcp_config of its option.c), and what is a name all the same.
WORDS = ("ignore", "Ignore", "infinite", "0", "17", "5s", "90m", "1h", "12H", "3d", "2W")
NAMES = ("ignored", "infinite1", "1hh", "h1", "w", "1x", "1-2", "web12")
DNSMASQ, NFDHCPD = Options(dhcp="dnsmasq"), Options(dhcp="nfdhcpd")
EUI64 = "2001:db8::a800:ff:fe00:1"


def nic(**changes: str) -> Nic:
    return nic_from_environment({**BASE, "MODE": "bridged", "LINK": "br0", "IP": "10.0.0.5", **changes})


def simulated() -> MemoryHost:
    """A node on which the servers' folders are."""
    host = MemoryHost()
    settings = Settings()
    host.files.folders |= {settings.dhcp_nfdhcpd_folder, settings.dhcp_dnsmasq_folder, settings.dhcp_dnsmasq_options_folder, "/run/options"}
    return host


def written(one: Nic, options: Options, **templates: str) -> NicFile:
    """The file, as it would be written."""
    host = simulated()
    host.templates.update({f"dhcp/{name}.j2": text for name, text in templates.items()})
    (made,) = dhcp.plan(one, Settings(), options).after[0].resolve(host.view(), [])
    assert isinstance(made, NicFile)
    return made


def line(one: Nic, options: Options = DNSMASQ) -> str:
    """What dnsmasq reads below our mark."""
    mark, rest = written(one, options).content.split("\n", 1)
    assert mark == f"{FILE_MARK}{one.uuid} dnsmasq:/run/dnsmasq/dnsmasq.pid"
    return rest


@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        ({}, {}, ",10.0.0.5,web1"),
        ({"IP": ""}, {}, ",web1"),
        ({"IP": "10.0.0.5/24"}, {}, ",10.0.0.5,web1"),
        ({"IP": "2001:db8::5"}, {}, ",[2001:db8::5],web1"),
        ({}, {"addresses": ("10.0.0.6", "2001:db8::7", "2001:db8::8")}, ",10.0.0.5,[2001:db8::7],web1"),
        (NETWORK, {}, ",10.0.0.5,web1"),
        (NETWORK, {"eui64": True}, f",10.0.0.5,[{EUI64}],web1"),
        ({"INTERFACE_INDEX": "1"}, {}, ",10.0.0.5"),
        ({"INSTANCE": "web1.example.org"}, {}, ",10.0.0.5,web1"),
        ({"INSTANCE": "DB--1.example.org"}, {}, ",10.0.0.5,db--1"),  # with its capitals dnsmasq refuses the whole line
        ({"INSTANCE": "x,10.0.0.9"}, {}, ",10.0.0.5"),
        ({"INSTANCE": "set:x"}, {}, ",10.0.0.5"),
        ({"INSTANCE": "#x"}, {}, ",10.0.0.5"),
        ({"INSTANCE": "é" * 9}, {}, ",10.0.0.5"),
        ({"INSTANCE": "a" * 64}, {}, ",10.0.0.5"),
        ({"INSTANCE": "", "INTERFACE_INDEX": ""}, {}, ",10.0.0.5"),
        *(({"INSTANCE": word + ".example"}, {}, ",10.0.0.5") for word in WORDS),
        *(({"INSTANCE": word}, {}, f",10.0.0.5,{word}") for word in NAMES),
    ],
)
def test_dnsmasq(changes: dict[str, str], options: dict[str, object], expected: str) -> None:
    """One line for one host, whatever users have called it."""
    chosen = DNSMASQ._replace(**options)  # type: ignore[arg-type]
    assert line(nic(**changes), chosen) == f"aa:00:00:00:00:01{expected}\n"


@pytest.mark.parametrize(("name", "said"), [("ignore", True), ("12h.example", True), ("web1", False), ("set:x", False)])
def test_a_name_that_dnsmasq_would_misread_is_said(name: str, said: bool) -> None:
    """The guest has its address without one; nfdhcpd, which has no such words, is given it."""
    for options, expected in ((DNSMASQ, said), (NFDHCPD, False)):
        warnings: list[str] = []
        dhcp.plan(nic(INSTANCE=name), Settings(), options).after[0].resolve(simulated().view(), warnings)
        assert [name.partition(".")[0] in each for each in warnings] == [True] * expected


@pytest.mark.parametrize(
    ("changes", "indev"),
    [({}, "br0"), ({"MODE": "openvswitch", "LINK": "ovs0"}, "ovs0"), ({"MODE": "routed", "LINK": "100"}, "tap0")],
)
def test_nfdhcpd(changes: dict[str, str], indev: str) -> None:
    made = written(nic(**NETWORK, **changes), NFDHCPD)
    assert (made.path, made.announce, made.reload, made.effects()) == ("/var/lib/nfdhcpd/tap0", True, "", ())
    assert made.content == (
        f'{FILE_MARK}{UUIDS[0]}\nINDEV={indev}\nIP=10.0.0.5\nMAC=aa:00:00:00:00:01\nHOSTNAME=web1\nTAGS="a:b"\nGATEWAY=10.0.0.1\n'
        f"SUBNET=10.0.0.0/24\nGATEWAY6=2001:db8::1\nSUBNET6=2001:db8::/64\nEUI64={EUI64}\n"
    )


def test_nfdhcpd_of_a_network_that_is_no_64() -> None:
    """The guest makes itself no address there, and we do not make one up."""
    assert written(nic(NETWORK_SUBNET6="2001:db8::/56"), NFDHCPD).content.endswith("SUBNET6=2001:db8::/56\nEUI64=\n")


#: What the settings say of a network, in full.
FIELDS = {
    "resolvers": ("10.0.0.53", "2001:db8::53", "10.0.0.54"),
    "search": ("example.com", "lab.example.com"),
    "routes": {"10.1.0.0/16": "10.0.0.254", "10.2.0.0/16": "10.0.0.253"},
    "mtu": 1400,
}
#: And what dnsmasq reads of it; RFC 3442 has the default route among the others.
LINES = (
    "tag:blue,option:router,10.0.0.1",
    "tag:blue,option:dns-server,10.0.0.53,10.0.0.54",
    "tag:blue,option6:dns-server,[2001:db8::53]",
    "tag:blue,option:domain-search,example.com,lab.example.com",
    "tag:blue,option6:domain-search,example.com,lab.example.com",
    "tag:blue,option:mtu,1400",
    "tag:blue,option:classless-static-route,10.1.0.0/16,10.0.0.254,10.2.0.0/16,10.0.0.253,0.0.0.0/0,10.0.0.1",
)


def told(one: Nic, fields: dict[str, object], options: Options = DNSMASQ, key: str = "blue") -> tuple[NetworkFile, ...]:
    """The files of networks in the plan of a NIC."""
    settings = Settings(nic={"dhcp": options.dhcp}, network_fields={key: fields})
    return tuple(each for each in plan(one, settings) if isinstance(each, NetworkFile))


def test_what_the_guests_of_a_network_are_told() -> None:
    (made,) = told(nic(**NETWORK), FIELDS)
    assert (made.folder, made.name, made.lines) == ("/var/lib/netcommon/dnsmasq-options", "blue", LINES)
    assert [made.identity()] == [*made.shared()] and made.effects() == (Reload("/run/dnsmasq/dnsmasq.pid", "dnsmasq"),)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"mtu": 1400}, [LINES[0], LINES[5]]),
        ({"gateway": "10.0.0.9"}, [LINES[0]]),  # the hypervisor's counts
        ({"routes": {"0.0.0.0/0": "10.0.0.9"}}, [LINES[0], "tag:blue,option:classless-static-route,0.0.0.0/0,10.0.0.9"]),
    ],
)
def test_the_gateway_goes_along(fields: dict[str, object], lines: list[str]) -> None:
    (made,) = told(nic(**NETWORK), fields)
    assert [*made.lines] == lines


def test_routes_without_a_gateway() -> None:
    (made,) = told(nic(NETWORK_NAME="blue"), {"routes": {"10.1.0.0/16": "10.0.0.254"}})
    assert made.lines == ("tag:blue,option:classless-static-route,10.1.0.0/16,10.0.0.254",)


def test_only_the_guests_of_the_network_and_of_dnsmasq() -> None:
    assert told(nic(**NETWORK), FIELDS, key="green") == () == told(nic(), FIELDS) == told(nic(**NETWORK), FIELDS, NFDHCPD)
    assert told(nic(NETWORK_NAME="blue"), {}) == () == told(nic(**NETWORK), FIELDS, Options())


@pytest.mark.parametrize(
    ("name", "identity", "tag"),
    [
        ("my.net_2-b", "", "my.net_2-b"),
        ("a,b", UUIDS[1], UUIDS[1]),
        ("known", UUIDS[1], UUIDS[1]),
        (".hidden", UUIDS[1], UUIDS[1]),
        ("blue", UUIDS[1], UUIDS[1]),  # the settings call it by its UUID
        ("x" * 64, UUIDS[1], UUIDS[1]),
        ("", UUIDS[1], UUIDS[1]),
        (UUIDS[2], UUIDS[1], UUIDS[1]),  # another network's
        (UUIDS[2].upper(), UUIDS[1], UUIDS[1]),
    ],
)
def test_the_tag_of_a_network(name: str, identity: str, tag: str) -> None:
    """It is a word of dnsmasq's and a file's name: no name that somebody has chosen is anything else there."""
    (made,) = told(nic(NETWORK_NAME=name, NETWORK_UUID=identity), FIELDS, key=identity.upper() or name)
    assert made.name == tag and all(each.startswith(f"tag:{tag},option") for each in made.lines)


def test_a_network_that_is_called_by_anothers_uuid() -> None:
    """It is told nothing of what the settings say of that one."""
    assert told(nic(NETWORK_NAME=UUIDS[2], NETWORK_UUID=UUIDS[1]), FIELDS, key=UUIDS[2]) == ()


def test_a_network_that_no_tag_can_stand_for() -> None:
    with pytest.raises(NicInvalid, match="NETWORK_UUID beside it"):
        told(nic(NETWORK_NAME="a,b"), FIELDS, key="a,b")


def test_the_uuids_table_is_the_stronger() -> None:
    settings = Settings(network_fields={UUIDS[1]: {"mtu": 1300}, "blue": {"mtu": 1400, "search": ("example.com",)}})
    found = fields_of(nic(NETWORK_NAME="blue", NETWORK_UUID=UUIDS[1], NETWORK_GATEWAY="10.0.0.1"), settings)
    assert found == NetworkFields("10.0.0.1", mtu=1300, search=("example.com",))


def test_gateways_where_the_hypervisor_gives_none() -> None:
    """nfdhcpd is told of them, and a routed guest's node answers for the one of IPv6."""
    settings = Settings(nic={"dhcp": "nfdhcpd"}, network_fields={"blue": {"gateway": "10.0.0.9", "gateway6": "2001:db8::9"}})
    routed = nic(NETWORK_NAME="blue", MODE="routed", LINK="100", IP="2001:db8::5")
    for one, expected in ((routed, ("10.0.0.9", "2001:db8::9")), (nic(**NETWORK), ("10.0.0.1", "2001:db8::1"))):
        (made,) = (each for each in plan(one, settings) if isinstance(each, NicFile))
        assert tuple(dict(made.variables)[name] for name in ("gateway", "gateway6")) == expected
    assert "gateway-neighbour" in [one.KIND for one in plan(routed, settings)]
    assert "gateway-neighbour" not in [one.KIND for one in plan(routed, settings._replace(network_fields={}))]


def test_what_nfdhcpd_has_no_place_for() -> None:
    """It is said at each up and by plan; a site's template that has a place for it is taken at its word."""
    settings = Settings(network_fields={"blue": {**FIELDS, "gateway": "10.0.0.9"}})
    (made,) = dhcp.plan(nic(**NETWORK), settings, NFDHCPD).after
    host, warnings = simulated(), list[str]()
    made.resolve(host.view(), warnings)
    expected = "tap0: /var/lib/nfdhcpd/tap0 has no place for the network's resolvers, search, routes, mtu: the guest is not told"
    assert warnings == [expected]
    host.templates["dhcp/nfdhcpd.j2"] = "MTU={{ mtu }}\nNAMESERVERS={{ resolvers }}\nROUTES={{ routes }}\nSEARCH={{ search }}\n"
    warnings.clear()
    (resolved,) = made.resolve(host.view(), warnings)
    text = "MTU=1400\nNAMESERVERS=10.0.0.53 2001:db8::53 10.0.0.54\nROUTES=10.1.0.0/16,10.0.0.254 10.2.0.0/16,10.0.0.253\n"
    assert warnings == [] and resolved._asdict()["content"].endswith(f"{text}SEARCH=example.com lab.example.com\n")


class TestNetworkFile:
    """One file for all NICs of a network: the last word counts, and no NIC takes it back for another."""

    def file(self, host: MemoryHost, owner: int, mtu: int) -> NetworkFile:
        host.files.folders.add("/run/options")
        (made,) = NetworkFile("/run/options", "blue", UUIDS[owner], (f"tag:blue,option:mtu,{mtu}",)).resolve(host.view(), [])
        assert isinstance(made, NetworkFile)
        return made

    def put(self, host: MemoryHost, one: NetworkFile) -> None:
        assert all(answer.ok for answer in host.execute(one.apply(), stop=True))

    def text(self, host: MemoryHost) -> str:
        found = host.view().file("/run/options", "blue")
        return found.content if found else ""

    def test_the_last_word_counts(self) -> None:
        host = simulated()
        first = self.file(host, 0, 1400)
        self.put(host, first)
        assert first.differs(host.view()) == ""
        same = self.file(host, 1, 1400)
        self.put(host, same)
        assert self.text(host) == first.content  # as the first one has left it
        second = self.file(host, 1, 1300)
        self.put(host, second)
        assert [one.differs(host.view()) for one in (first, same, second)] == ["", "", ""]
        third, instead = self.file(host, 0, 1200), self.file(host, 0, 1100)
        self.put(host, third)
        assert [one.differs(host.view()) for one in (first, second, third)] == ["", "", ""]
        assert instead.differs(host.view()) == "it says something else", "in the same turn only one of two"

    @pytest.mark.parametrize("how", ["edited", "cut", "foreign", "gone", "mode"])
    def test_a_change_by_hand_is_seen_by_every_nic(self, how: str) -> None:
        """Also where the one that has written it has gone."""
        host = simulated()
        one, other = self.file(host, 0, 1400), self.file(host, 1, 1400)
        self.put(host, one)
        text = one.content
        changed = {"edited": text.replace("1400", "1500"), "cut": text[: text.index("\n") + 1], "foreign": "mtu\n", "mode": text}
        if how == "gone":
            host.files.contents.clear()
        else:
            host.files.put("/run/options", "blue", changed[how], 0o600 if how == "mode" else 0o644)
        assert one.differs(host.view()) and other.differs(host.view())
        if how == "foreign":
            assert one.revert(host.view()) == []
            with pytest.raises(HostRefused, match="/run/options/blue"):
                self.file(host, 1, 1400)
        else:
            self.put(host, self.file(host, 1, 1400))
            assert other.differs(host.view()) == "" and "option:mtu,1400" in self.text(host)

    def test_of_two_words_the_later_one_counts_whoever_repairs(self) -> None:
        """Put back what is on record as it was said; what was said before it gives way, and an up says today's lines again."""
        host = simulated()
        old = self.file(host, 0, 1400)
        self.put(host, old)
        new = self.file(host, 1, 1300)
        self.put(host, new)
        assert [one.resolve(host.view(), []) for one in (old, new)] == [[old], [new]]
        host.files.contents.clear()
        self.put(host, old)
        assert [one.differs(host.view()) for one in (old, new)] == ["", "it says what was said before"]
        self.put(host, new)
        assert [one.differs(host.view()) for one in (old, new)] == ["", ""]
        again = self.file(host, 0, 1400)  # the first NIC comes up once more
        assert again.differs(host.view()) == "it says what was said before"
        self.put(host, again)
        assert [one.differs(host.view()) for one in (again, new)] == ["", ""] and "option:mtu,1400" in self.text(host)

    def test_a_device_with_the_networks_name(self) -> None:
        """dnsmasq takes the name of the device that was asked on for a tag: whoever is there would be told."""
        host = simulated()
        host.add_bridge("br7", 1500)
        with pytest.raises(HostRefused, match="the network's name br7 for that of the device"):
            NetworkFile("/run/options", "br7", UUIDS[0], ("tag:br7,option:mtu,1400",)).resolve(host.view(), [])

    def test_the_last_one_removes_it_whoever_has_written_it(self) -> None:
        host = simulated()
        self.put(host, self.file(host, 0, 1400))
        assert all(answer.ok for answer in host.execute(self.file(host, 1, 1400).revert(host.view()), stop=True))
        assert self.text(host) == ""


@given(valid_environments())
def test_a_line_of_hostile_words_is_one_line(variables: dict[str, str]) -> None:
    """Nothing that users may choose ends a line, or adds one."""
    one = nic_from_environment(variables)
    if not one.mac or one.interface.startswith("."):
        return
    for options, lines in ((DNSMASQ, 2), (NFDHCPD, 11)):
        made = written(one, options)
        assert len(made.content.splitlines()) == lines == made.content.count("\n")
        assert made.name in (one.uuid, one.interface) and "/" not in made.name


@pytest.mark.parametrize("index", ["0", "3"])
def test_the_emulated_twin_of_a_nic_of_xen(index: str) -> None:
    """It has the NIC's MAC and address, and no index: it takes neither the name, nor the NIC's place in dnsmasq's folder."""
    real = nic(INTERFACE="vif5.0", INTERFACE_INDEX=index, XENBUS_PATH="backend/vif/5/0")
    twin = real._replace(interface="vif5.0-emu", uuid=UUIDS[1], index=None)
    assert line(real) == "aa:00:00:00:00:01,10.0.0.5" + (",web1\n" if index == "0" else "\n")
    assert dhcp.plan(twin, Settings(), DNSMASQ) == Part()
    names = "{{ interface }} {{ host }}"
    assert written(real, NFDHCPD, nfdhcpd=names).content.endswith("vif5.0 web1" if index == "0" else "vif5.0 ")
    assert written(twin, NFDHCPD, nfdhcpd=names).content.endswith("vif5.0-emu ")


def test_a_nic_that_somebody_has_defined_without_an_index() -> None:
    assert line(nic(INTERFACE_INDEX="")) == "aa:00:00:00:00:01,10.0.0.5,web1\n"


def test_a_nic_without_mac() -> None:
    for options in (DNSMASQ, NFDHCPD):
        with pytest.raises(NicInvalid, match="MAC"):
            dhcp.plan(nic()._replace(mac=""), Settings(), options)


def test_only_where_it_is_asked_for() -> None:
    """By a tag, for a network, for all; never for a NIC of instance communication."""
    everywhere = Settings(nic={"dhcp": "dnsmasq"})
    assert "file" not in [one.KIND for one in plan(nic(), Settings())]
    assert "file" in [one.KIND for one in plan(nic(), everywhere)]
    assert "file" in [one.KIND for one in plan(nic(TAGS="netcommon:0:dhcp:nfdhcpd"), Settings())]
    communication = nic(INTERFACE="gnt.com.0", MODE="routed", LINK="x", IP="169.254.0.1")
    assert [one._asdict()["folder"] for one in plan(communication, everywhere) if one.KIND == "file"] == ["communication/hosts"]


def test_a_sites_template() -> None:
    """It is given what ours is; a word that there is none of is an error."""
    template = "{{ mac }},{{ ip }},set:{{ network }},12h\n"
    made = written(nic(**NETWORK), DNSMASQ, dnsmasq=template)
    assert made.content.endswith("\naa:00:00:00:00:01,10.0.0.5,set:blue,12h\n")
    with pytest.raises(SettingsInvalid, match=r"dhcp/dnsmasq\.j2"):
        written(nic(), DNSMASQ, dnsmasq="{{ netwrok }}")


def test_a_foreign_file_in_the_way() -> None:
    host = simulated()
    host.files.put("/var/lib/nfdhcpd", "tap0", "IP=10.0.0.9\n")
    with pytest.raises(HostRefused, match="/var/lib/nfdhcpd/tap0"):
        dhcp.plan(nic(), Settings(), NFDHCPD).after[0].resolve(host.view(), [])


def test_what_is_said_of_a_network_is_in_one_file_alone() -> None:
    """A change of it is no change of each guest's own line."""
    plans = [plan(nic(**NETWORK), Settings(nic={"dhcp": "dnsmasq"}, network_fields={"blue": {"mtu": mtu}})) for mtu in (1400, 1300)]
    assert [one.KIND for one in plans[0] if one not in plans[1]] == ["network-file"]
