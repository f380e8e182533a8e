"""What the settings file may hold: a new setting is a field of ``Settings`` and a row of ``KEYS``.

From the row follow validation, line numbers in errors, ``netcommon config``, and the setting's place in the example's test.
"""

from __future__ import annotations

from typing import NamedTuple

from netcommon.kinds import Choice, Interfaces, Kind, Seconds, Text, Whole
from netcommon.options_schema import OPTIONS


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


#: What Ganeti takes in a tag, colons among it: "synnefo:network" is a prefix too.
PREFIX = Text("a word of letters, digits and .+*/:@-_", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+*/:@-_")

FACILITIES = ("daemon", "user", *(f"local{number}" for number in range(8)))

KEYS: tuple[Key, ...] = (
    Key("hook", "timeout", "hook_timeout", Seconds(1, 600), "the whole hook; custom scripts get what remains of it"),
    Key("hook", "service_timeout", "service_timeout", Seconds(0.1, 300), "each service of the host, such as OVSDB"),
    Key("rules", "preference", "rule_preference", Whole(1, 32765), "preference of our policy rules (ip-rule(8))"),
    Key("custom", "order", "custom_order", Choice(("after", "instead")), "site scripts of Ganeti: after or instead of the built-in"),
    Key("custom", "output_limit", "custom_output_limit", Whole(0, 1 << 24, " of bytes"), "what is kept of a script's output"),
    Key("ganeti", "nic_files", "ganeti_nic_files", Choice(("auto", "on", "off")), "keep Ganeti's nic/ files; auto: where Ganeti is there"),
    Key("log", "facility", "syslog_facility", Choice(FACILITIES), "the facility of our lines in syslog"),
    Key("bridges.*", "uplinks", "uplinks", Interfaces(), "the bridge's ports towards the network, which get the guests' VLANs"),
    Key("tags", "prefix", "tag_prefix", PREFIX, "what tags with options begin with, up to their colon"),
    *(Key("nic", option.name, "nic", option.kind, option.doc, option.name) for option in OPTIONS),
    *(Key("networks.*", option.name, "networks", option.kind, option.doc, option.name) for option in OPTIONS),
)
