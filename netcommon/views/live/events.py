"""What happens to NICs, one line each; which of it somebody wants to see."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from netcommon.log import printable
from netcommon.views.topology.text import BOLD, GREEN, RED, YELLOW, Style
from runtime.errors import NicInvalid

SCHEMA, VERSION = "netcommon-event", 1

#: What events are painted with, by their kind (netagent.observe.history has them all).
COLOURS = {"up": GREEN, "repaired": GREEN, "drift": YELLOW, "not repaired": RED, "failed": RED, "alarm": RED, "events lost": YELLOW}

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SINCE = "a time ago as 90s, 10m, 2h, 1d, or a local time as 2026-11-22 or 2026-11-22 04:41:37"


class Event(NamedTuple):
    """One thing that has happened."""

    number: int  #: of the agent's, counted from its start; 0: of none of the agent's
    when: float  #: seconds since the epoch
    kind: str
    label: str  #: the NIC's; "" for what is about no NIC
    device: str
    uuid: str
    text: str


def event(told: Mapping[str, Any]) -> Event:
    """From the agent's answer. Raises KeyError, TypeError or ValueError for what is none."""
    number, when = int(told["number"]), float(told["when"])
    return Event(number, when, *(str(told[name]) for name in ("kind", "label", "device", "uuid", "text")))


def document(one: Event) -> dict[str, Any]:
    """As JSON (docs/seeing.md)."""
    return {"schema": SCHEMA, "version": VERSION, **one._asdict()}


def about(one: Event, names: Collection[str]) -> bool:
    """Whether it is about a NIC of these names: UUID, device, INSTANCE/INDEX, or instance; no names: all."""
    return not names or bool({one.uuid, one.device, one.label, one.label.rpartition("/")[0]} & set(names) - {""})


def line(one: Event, zone: tzinfo | None, style: Style) -> str:
    """For people, in the time zone ``zone`` (None: the node's)."""
    when = datetime.fromtimestamp(one.when, zone).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %z")
    who = f"{one.label} on {one.device}" if one.label and one.device else one.label or one.device
    said = ": ".join(printable(each) for each in (who, one.text) if each)
    kind = style.paint(one.kind, COLOURS.get(one.kind, BOLD)) + " " * (13 - len(one.kind))
    return f"{when}  {kind} {said}".rstrip()


def moment(text: str, now: float) -> float:
    """What --since means, in seconds since the epoch. Raises NicInvalid."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found:
        return now - int(found[1]) * UNITS[found[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise NicInvalid("--since", text, SINCE) from None
