"""The settings of a node, as values: their defaults are good without a file."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Settings(NamedTuple):
    """The effective settings. Times in seconds, sizes in bytes. Each field's place in the file: netcommon.settings.schema.KEYS."""

    rule_preference: int = 500
    service_timeout: float = 10.0
    hook_timeout: float = 30.0
    custom_order: str = ""  #: "after", "instead"; "": not chosen, each script has its own default
    custom_output_limit: int = 65536
    ganeti_nic_files: str = "auto"  #: "auto", "on", "off"
    uplinks: Mapping[str, tuple[str, ...]] = {}  #: per bridge, where they shall not be guessed
    syslog_facility: str = "daemon"
    tag_prefix: str = "netcommon"  #: tags that begin with it and a colon are options (netcommon.options.model)
    nic: Mapping[str, Any] = {}  #: options of every NIC, by name
    networks: Mapping[str, Mapping[str, Any]] = {}  #: options of the NICs of a network, by its name or UUID
    network_fields: Mapping[str, Mapping[str, Any]] = {}  #: what a network's guests are told (netcommon.options.networks), by name or UUID
    rule_mark: int = 0  #: the bits of packets' marks that say in which table routed guests' packets are looked up; 0: a rule for each NIC
    tap_alias: bool = True  #: devices bear our mark as their alias
    dhcp_nfdhcpd_folder: str = "/var/lib/nfdhcpd"
    dhcp_dnsmasq_folder: str = "/var/lib/netcommon/dnsmasq"  #: its dhcp-hostsdir
    dhcp_dnsmasq_options_folder: str = "/var/lib/netcommon/dnsmasq-options"  #: its dhcp-optsdir
    dhcp_dnsmasq_pid: str = "/run/dnsmasq/dnsmasq.pid"  #: "": it is not told
    dns_servers: tuple[str, ...] = ()  #: "ADDRESS:PORT", "[ADDRESS]:PORT"
    dns_zones: tuple[str, ...] = ()  #: forward and reverse; none: no DNS
    dns_key_file: str = "/etc/netcommon/dns.key"
    dns_timeout: float = 5.0
    dns_ttl: int = 3600
    dns_domain: str = ""
    dns_other_nics: str = "{host}-eth{index}"
    dns_eui64: bool = False
    dns_cluster: str = ""
    agent_resync: float = 60.0
    agent_start_delay: float | str = "auto"  #: seconds; "auto": by the node (netagent.start_delay)
    agent_reap_interval: float = 600.0
    agent_reap_grace: float = 120.0
    agent_reap_cap: int = 100
    agent_hook_socket: bool = True
    agent_metrics_file: str = ""  #: "": none
    agent_metrics_listen: str = ""  #: "ADDRESS:PORT", "[ADDRESS]:PORT", the path of a Unix socket; "": nowhere
    registry_store: str = ""
    registry_sync: bool = True
    registry_compare_delay: float | str = "auto"  #: seconds; "auto": 120 to 600 by chance
    registry_compare_interval: float = 3600.0
    registry_reap: str = "on"  #: "on", "report", "off"
    registry_reap_cap: int = 20
    registry_addresses: tuple[str, ...] = ()  #: "https://HOST:PORT"; (): those of the join
    registry_listen: tuple[str, ...] = ()  #: "ADDRESS:PORT", "[ADDRESS]:PORT"
    registry_names: tuple[str, ...] = ()  #: (): the machine's own
    registry_zone_servers: tuple[str, ...] = ()  #: "ADDRESS:PORT", "[ADDRESS]:PORT"; (): the underlay's names are not published from here
    registry_zone_key_file: str = "/etc/netcommon/zone.key"
    registry_zone_timeout: float = 3.0
    underlay_device: str = "lo"  #: which has the node's addresses of an underlay
    repair: Mapping[str, str] = {}  #: kind of operation -> "off", "report", "on"; not in it: "on"
    extensions: Mapping[str, Mapping[str, Any]] = {}  #: modules of the site, by name: what each ``adds``, and its ``parameters``
    broken: str = ""  #: why the file cannot be used: these are the defaults then, or an earlier file's, and no NIC is made anew by them
    renamed: tuple[str, ...] = ()  #: what the file calls by a name of an older version, one line each (netcommon.settings.deprecated)

    @property
    def folders(self) -> tuple[str, ...]:
        """Where files of ours lie that other daemons read."""
        return tuple(filter(None, (self.dhcp_nfdhcpd_folder, self.dhcp_dnsmasq_folder, self.dhcp_dnsmasq_options_folder)))
