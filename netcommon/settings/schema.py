"""What the settings file may hold: a new setting is a field of ``Settings`` and a row of ``KEYS``.

From the row follow validation, line numbers in errors, ``netcommon config``, and the setting's place in the example's test.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6

from netcommon.operations.kinds import REPAIRED
from netcommon.options.model import DEFAULTS
from netcommon.options.schema import OPTIONS
from netcommon.options.types import Bits, Choice, Interface, Interfaces, Seconds, TagPrefix, Truth, Whole
from netcommon.settings.network_types import Host, Resolvers, Routes, Search
from netcommon.settings.types import (
    REPAIRS,
    Delay,
    Domain,
    EtcdAddress,
    FilePath,
    Listen,
    Listens,
    Names,
    Parameters,
    Servers,
    Template,
    Urls,
    Zones,
)
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.options.types import Kind


class Key(NamedTuple):
    """One setting: where it stands in the file, which field of Settings it is, what it may be, and what it means.

    A table named "bridges.*" stands for any number of tables [bridges.NAME]; its field is a mapping from NAME. Where ``option`` is
    given, the field, or each of its values, is a mapping from options to values.
    """

    table: str
    name: str
    field: str
    kind: Kind
    doc: str
    option: str = ""
    default: object = None  #: of an option; of the others Settings has it


FACILITIES = ("daemon", "user", *(f"local{number}" for number in range(8)))

#: What is of a network as a whole: each field of netcommon.options.networks.NetworkFields, what it may be, and what it means.
NETWORK_FIELDS: tuple[tuple[str, Kind, str], ...] = (
    ("gateway", Host(AF_INET), "the guests' IPv4 router, where the hypervisor gives none"),
    ("gateway6", Host(AF_INET6), "the guests' IPv6 router, where the hypervisor gives none"),
    ("resolvers", Resolvers(), "the name servers that the guests are told"),
    ("search", Search(), "the domains in which the guests look for short names"),
    ("routes", Routes(), "IPv4 routes that the guests are told, besides that to their gateway"),
    ("mtu", Whole(68, 65535, " of bytes"), "the MTU that the guests are told by DHCP"),
)

KEYS: tuple[Key, ...] = (
    Key("hook", "timeout", "hook_timeout", Seconds(1, 600), "the whole hook; custom scripts get what remains of it"),
    Key("hook", "service_timeout", "service_timeout", Seconds(0.1, 300), "each service of the host, such as OVSDB; at most the hook's"),
    Key("rules", "preference", "rule_preference", Whole(1, 32765), "preference of our policy rules (ip-rule(8))"),
    Key("rules", "mark", "rule_mark", Bits(), "bits of packets' marks: one rule for all NICs of a routing table; 0: one for each NIC"),
    Key("custom", "order", "custom_order", Choice(("after", "instead")), "site scripts of Ganeti: after or instead of the built-in"),
    Key("custom", "output_limit", "custom_output_limit", Whole(0, 1 << 24, " of bytes"), "what is kept of a script's output"),
    Key("ganeti", "nic_files", "ganeti_nic_files", Choice(("auto", "on", "off")), "keep Ganeti's nic/ files; auto: where Ganeti is there"),
    Key("ganeti", "tap_alias", "tap_alias", Truth(), "taps bear the NIC's UUID as their alias; not with instance communication"),
    Key("log", "facility", "syslog_facility", Choice(FACILITIES), "the facility of our lines in syslog"),
    Key("bridges.*", "uplinks", "uplinks", Interfaces(), "the bridge's ports towards the network, which get the guests' VLANs"),
    Key("tags", "prefix", "tag_prefix", TagPrefix(), "what tags with options begin with, up to their colon"),
    Key("dhcp", "nfdhcpd_folder", "dhcp_nfdhcpd_folder", FilePath("/var/lib/nfdhcpd"), "where nfdhcpd looks for its binding files"),
    Key("dhcp", "dnsmasq_folder", "dhcp_dnsmasq_folder", FilePath("/var/lib/netcommon/dnsmasq"), "the dhcp-hostsdir of the site's dnsmasq"),
    Key(
        "dhcp",
        "dnsmasq_options_folder",
        "dhcp_dnsmasq_options_folder",
        FilePath("/var/lib/netcommon/dnsmasq-options"),
        "its dhcp-optsdir: what the guests of a network are told",
    ),
    Key(
        "dhcp",
        "dnsmasq_pid",
        "dhcp_dnsmasq_pid",
        FilePath("/run/dnsmasq/dnsmasq.pid"),
        "its pid file: SIGHUP tells it of changes; none: it is not told",
    ),
    Key("dns", "servers", "dns_servers", Servers(), "the servers that take updates, in the order in which they are tried"),
    Key("dns", "zones", "dns_zones", Zones(), "the zones whose records are kept, forward and reverse; none: no DNS"),
    Key(
        "dns",
        "key_file",
        "dns_key_file",
        FilePath("/etc/netcommon/dns.key"),
        "the TSIG key, as tsig-keygen writes it, which root alone can read",
    ),
    Key("dns", "timeout", "dns_timeout", Seconds(0.1, 60), "each answer of a server; one that gave none is not asked again by this hook"),
    Key("dns", "ttl", "dns_ttl", Whole(0, 604800, " of seconds"), "time to live of the records"),
    Key("dns", "domain", "dns_domain", Domain(), "appended to the name of an instance that has no dot"),
    Key("dns", "other_nics", "dns_other_nics", Template(), "first label of the names of NICs after the first; none: they get no records"),
    Key("dns", "eui64", "dns_eui64", Truth(), "an AAAA record for the address that a guest makes of its MAC (RFC 4291)"),
    Key("dns", "cluster", "dns_cluster", Domain(), "the cluster's name in our marks; none: the one that Ganeti gives"),
    Key("agent", "resync", "agent_resync", Seconds(1, 86400), "how often all NICs are compared with the host, about"),
    Key("agent", "start_delay", "agent_start_delay", Delay(Seconds(0, 86400)), "from the agent's start to its first reaping"),
    Key("agent", "reap_interval", "agent_reap_interval", Seconds(1, 86400), "how often what nobody needs any more is looked for, about"),
    Key("agent", "reap_grace", "agent_reap_grace", Seconds(0, 86400), "so long what is on no record must have been seen before it goes"),
    Key("agent", "reap_cap", "agent_reap_cap", Whole(1, 1000000), "so many things one reaping removes at most"),
    Key("agent", "hook_socket", "agent_hook_socket", Truth(), "the hooks hand their calls over to the agent, which answers sooner"),
    Key(
        "agent",
        "metrics_file",
        "agent_metrics_file",
        FilePath("/var/lib/prometheus/node-exporter/netcommon.prom"),
        "the metrics for node_exporter's textfile collector; none: no file",
    ),
    Key("agent", "metrics_listen", "agent_metrics_listen", Listen(), "where the metrics are answered by HTTP; none: nowhere"),
    Key("registry", "store", "registry_store", EtcdAddress(), "the etcd that keeps the registry which this machine serves; none: a file"),
    Key("registry", "sync", "registry_sync", Truth(), "a node that has joined a registry speaks with it; the agent does"),
    Key(
        "registry",
        "compare_delay",
        "registry_compare_delay",
        Delay(Seconds(0, 86400)),
        "from the agent's start to the first comparison with the registry",
    ),
    Key("registry", "compare_interval", "registry_compare_interval", Seconds(60, 86400), "between two comparisons, about"),
    Key("registry", "reap", "registry_reap", Choice(("on", "report", "off")), "what is not defined here any more goes there too"),
    Key("registry", "reap_cap", "registry_reap_cap", Whole(1, 1000000), "so many wanted NICs one comparison removes at most"),
    Key("registry", "addresses", "registry_addresses", Urls(), "where the registry is, tried in turn; none: those that it was joined by"),
    Key("registry", "listen", "registry_listen", Listens(), "on the registry's machine: where its service lets others in by TLS"),
    Key("registry", "names", "registry_names", Names(), "on the registry's machine: the names in its certificate; none: the machine's own"),
    Key(
        "registry", "zone_servers", "registry_zone_servers", Servers(), "on the registry's machine: the DNS servers of the underlay's zone"
    ),
    Key(
        "registry",
        "zone_key_file",
        "registry_zone_key_file",
        FilePath("/etc/netcommon/zone.key"),
        "on the registry's machine: the TSIG key for them, as tsig-keygen writes it, which root alone can read",
    ),
    Key("registry", "zone_timeout", "registry_zone_timeout", Seconds(0.1, 60), "on the registry's machine: each answer of such a server"),
    Key("underlay", "device", "underlay_device", Interface(), "the device that has the node's addresses of an underlay"),
    Key("extensions.*", "adds", "extensions", Choice(("mode", "feature")), "a mode, for NICs of mode ext, or a feature", "adds"),
    Key("extensions.*", "parameters", "extensions", Parameters(), "what it is given of the site's own", "parameters"),
    Key("extensions.*", "repair", "extensions", Choice(REPAIRS), "as in [repair], for its own kinds of operations", "repair"),
    *(Key("repair", kind, "repair", Choice(REPAIRS), doc, kind, "on") for kind, doc in REPAIRED.items()),
    *(Key("nic", option.name, "nic", option.kind, option.doc, option.name, getattr(DEFAULTS, option.name)) for option in OPTIONS),
    *(Key("networks.*", option.name, "networks", option.kind, option.doc, option.name) for option in OPTIONS),
    *(Key("networks.*", name, "network_fields", kind, doc, name) for name, kind, doc in NETWORK_FIELDS),
)
