"""Count what the service does, and say it in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

from netregistry.state import State, all_conflicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.service.registry import Registry
    from netregistry.service.turned_away import TurnedAway


class Figures:
    """What is counted beside what the registry itself knows. Seconds are those of a monotonic clock."""

    def __init__(self, away: TurnedAway) -> None:
        self.away = away
        self.until = 0.0  #: when the service's certificate ends, seconds since the epoch; 0: it has none
        self.answers: dict[tuple[str, int], int] = {}  #: by name of the endpoint and status
        self.seconds = 0.0  #: in which requests were worked on
        self.faults = 0

    def answered(self, name: str, status: int) -> None:
        self.answers[name, status] = self.answers.get((name, status), 0) + 1


class _Metric(NamedTuple):
    name: str
    kind: str
    about: str
    value: float


def rendered(figures: Figures, registry: Registry, waiting: int) -> str:
    """Give all figures. ``waiting``: requests that are in line."""
    lines = ["# HELP netregistry_answers_total Answers by endpoint and status.", "# TYPE netregistry_answers_total counter"]
    for (name, status), count in sorted(figures.answers.items()):
        lines.append(f'netregistry_answers_total{{endpoint="{name}",status="{status}"}} {count}')
    lines += [
        "# HELP netregistry_turned_away_total Who was refused as whom he came, by reason.",
        "# TYPE netregistry_turned_away_total counter",
    ]
    for reason, count in figures.away.counts.items():
        lines.append(f'netregistry_turned_away_total{{reason="{reason}"}} {count}')
    lines += ["# HELP netregistry_nics_state NICs by state.", "# TYPE netregistry_nics_state gauge"]
    for state in get_args(State):
        lines.append(f'netregistry_nics_state{{state="{state}"}} {registry.states.count(state)}')
    for metric in _metrics(figures, registry, waiting):
        lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}", f"{metric.name} {metric.value:g}"]
    return "\n".join(lines) + "\n"


def _metrics(figures: Figures, registry: Registry, waiting: int) -> Iterator[_Metric]:
    view, streams = registry.local.view, registry.streams
    conflicts = len(all_conflicts(view, registry.states.members("conflict")))
    for kind in ("networks", "nics", "nodes"):
        yield _Metric(f"netregistry_{kind}", "gauge", f"{kind} that there are.", len(view.all(kind)))
    yield _Metric("netregistry_nodes_alive", "gauge", "Nodes with a lease.", len(view.all("alive")))
    yield _Metric("netregistry_conflicts", "gauge", "MACs and addresses that several NICs want or have.", conflicts)
    yield _Metric("netregistry_unreadable", "gauge", "Keys whose values cannot be read.", len(view.unreadable))
    yield _Metric("netregistry_revision", "gauge", "Revision of the view.", view.revision)
    yield _Metric("netregistry_leader", "gauge", "1: this service leads.", registry.leads)
    yield _Metric("netregistry_streams", "gauge", "Streams that are open.", streams.count)
    yield _Metric("netregistry_streams_waiting_bytes", "gauge", "The most bytes that wait for one stream.", streams.waiting)
    yield _Metric("netregistry_streams_cut_total", "counter", "Streams that were cut off: too slow.", streams.cut)
    yield _Metric("netregistry_streams_revoked_total", "counter", "Streams that were ended with their certificates.", streams.revoked)
    ends = [each.until for each in view.all("authorities").values()]
    yield _Metric("netregistry_certificate_end_seconds", "gauge", "When the service's certificate ends; 0: none.", figures.until)
    yield _Metric("netregistry_authority_end_seconds", "gauge", "When the last authority ends; 0: none.", max(ends, default=0.0))
    held = registry.local.leader.held
    yield _Metric("netregistry_held_seconds", "gauge", "Seconds for which nothing ends by time, since the clock has jumped.", held)
    yield _Metric("netregistry_requests_waiting", "gauge", "Requests that are in line.", waiting)
    yield _Metric("netregistry_work_seconds_total", "counter", "Time in which requests were worked on.", figures.seconds)
    yield _Metric("netregistry_reports_misplaced_total", "counter", "Reports for another node.", registry.misplaced)
    yield _Metric("netregistry_faults_total", "counter", "Faults of the service.", figures.faults)
