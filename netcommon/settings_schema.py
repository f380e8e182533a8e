"""What the settings file may hold: a new setting is a field of ``Settings`` and a row of ``KEYS``.

From the row follow validation, line numbers in errors, ``netcommon config``, and the setting's place in the example's test.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Kind(Protocol):
    """What a value must be: ``read`` returns it as Settings holds it, or raises ValueError."""

    @property
    def expected(self) -> str: ...
    def read(self, value: Any) -> object: ...


class Whole(NamedTuple):
    """A whole number within a range, both ends included."""

    low: int
    high: int
    unit: str = ""

    @property
    def expected(self) -> str:
        return f"a whole number{self.unit}, {self.low} to {self.high}"

    def read(self, value: Any) -> object:
        if type(value) is not int or not self.low <= value <= self.high:
            raise ValueError
        return value


class Seconds(NamedTuple):
    """A time in seconds, with or without a fraction."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"seconds, {self.low:g} to {self.high:g}"

    def read(self, value: Any) -> object:
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            raise ValueError
        return float(value)


class Choice(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError
        return value


class Interfaces(NamedTuple):
    """A list of interface names, each named once."""

    @property
    def expected(self) -> str:
        return 'a list of interface names such as ["eth1"], each once'

    def read(self, value: Any) -> object:
        if not isinstance(value, list) or not all(isinstance(item, str) and is_interface(item) for item in value):
            raise ValueError
        if len(set(value)) != len(value):
            raise ValueError
        return tuple(value)


def is_interface(name: str) -> bool:
    """Whether the kernel would take ``name`` for an interface (dev_valid_name: 15 bytes, no slash, colon or white space)."""
    return (
        0 < len(name.encode()) <= 15
        and name not in (".", "..")
        and name.isprintable()
        and not any(char in "/:" or char.isspace() for char in name)
    )


class Key(NamedTuple):
    """One setting: where it stands in the file, which field of Settings it is, what it may be, and what it means.

    A table named "bridges.*" stands for any number of tables [bridges.NAME]; its field is a mapping from NAME.
    """

    table: str
    name: str
    field: str
    kind: Kind
    doc: str


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
)
