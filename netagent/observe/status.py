"""The agent's status: one document for machines, and the same for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netcommon import __version__
from netcommon.log import printable

#: The format of the document: grows when a field goes or changes its meaning.
FORMAT = 1


class Standing:
    """How the service stands; written by the main thread, read by the one that answers."""

    def __init__(self, pid: int, netns: int, started: float, now: float) -> None:
        self.pid, self.netns = pid, netns
        self.started = started  #: seconds since the epoch
        self.begun = self.turned = now  #: monotonic seconds; when the loop last turned
        self.state = "starting"  #: "starting", "running", "stopping"
        self.settings = ""  #: "in force", or what is wrong with the file
        self.text = ""


def document(standing: Standing, now: float, alarms: Mapping[str, str], agent: Mapping[str, object]) -> dict[str, object]:
    """The status as JSON can hold it; ``now`` is monotonic seconds."""
    return {
        "format": FORMAT,
        "version": __version__,
        "pid": standing.pid,
        "netns": standing.netns,
        "state": standing.state,
        "text": standing.text,
        "started": round(standing.started, 3),
        "uptime": round(now - standing.begun, 3),
        "turned": round(now - standing.turned, 3),
        "settings": standing.settings,
        "alarms": dict(alarms),
        "agent": dict(agent),
    }


def render(status: Mapping[str, object]) -> str:
    """The status for people: one fact a line, alarms last."""
    agent, alarms = status.get("agent"), status.get("alarms")
    said = {name: status.get(name, "?") for name in ("version", "pid", "state", "settings")}
    lines = [
        f"agent {said['version']}, process {said['pid']}: {said['state']} for {_time(status.get('uptime'))}",
        f"  settings: {said['settings']}",
        f"  loop: turned {_time(status.get('turned'))} ago",
    ]
    if isinstance(agent, Mapping):
        lines += _facts(agent, "  ")
    if isinstance(alarms, Mapping):
        lines += [f"ALARM {name}: {text}" for name, text in alarms.items()] or ["no alarms"]
    return "\n".join(printable(line) for line in lines)


def _facts(facts: Mapping[object, object], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            shown = ", ".join(f"{_plain(inner)} {key}" for key, inner in value.items())
            yield f"{indent}{name}: {shown or 'none'}"
        elif isinstance(value, list | tuple):
            yield f"{indent}{name}: {', '.join(_plain(inner) for inner in value) or 'none'}"
        else:
            yield f"{indent}{name}: {_plain(value)}"


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _time(seconds: object) -> str:
    """A time for people: "0.3 s", "5 min 10 s", "3 d 4 h"."""
    if not isinstance(seconds, int | float):
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
