"""What the agent counts, as Prometheus' text format 0.0.4 (prometheus.io: exposition formats).

Our own, not prometheus_client: measured, that costs 12 MB and 180 ms of a start (this: 2 MB and 13 ms), and half a second for the text
of 10,000 series (this: 0.04 s).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

#: Upper bounds of the histograms' buckets (seconds): from a batched change to a hook's time limit.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: Series of one metric, at most: labels that somebody else chooses must not fill the memory.
MOST = 20000

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """What one name means."""

    kind: str
    help: str


#: Every metric there is; tests hold that nothing else is counted, and that docs/agent.md has the same list.
METRICS = {
    "netcommon_hook_calls_total": Metric(COUNTER, "Calls of the hooks, by door, mode of the NIC, outcome, and path: warm or cold."),
    "netcommon_hook_seconds": Metric(HISTOGRAM, "How long the hooks took, without the start of their interpreter."),
    "netcommon_hook_handed_back_total": Metric(COUNTER, "Calls that the agent left to the hook itself, by reason."),
    "netcommon_nics": Metric(GAUGE, "NICs on record, by the state of the record."),
    "netcommon_drift_total": Metric(COUNTER, "Operations that were found not to hold, by kind."),
    "netcommon_repairs_total": Metric(COUNTER, "Repairs of operations, by kind and outcome."),
    "netcommon_reaped_total": Metric(COUNTER, "What the reaper removed, by reason."),
    "netcommon_device_gone_total": Metric(COUNTER, "NICs whose device went without a down, by outcome."),
    "netcommon_event_lag_seconds": Metric(HISTOGRAM, "From the arrival of an event to the end of the work that it caused."),
    "netcommon_overruns_total": Metric(COUNTER, "Events that were lost, so that everything was read again, by source."),
    "netcommon_alarms": Metric(GAUGE, "1 for each alarm that is on."),
    "netcommon_guard_dropped_total": Metric(COUNTER, "Frames of guests that the spoof guard dropped, by NIC and reason."),
    "netcommon_resync_seconds": Metric(HISTOGRAM, "How long comparing all records with the host took."),
    "netcommon_registry_connected": Metric(GAUGE, "1 while the node is told by its registry what is wanted, and knows all of it."),
    "netcommon_registry_heard_seconds": Metric(GAUGE, "When the registry last said anything, seconds since the epoch."),
    "netcommon_registry_revision": Metric(GAUGE, "Revision of the registry up to which the node was told all."),
    "netcommon_registry_marks": Metric(GAUGE, "NICs that the registry is still to be told of."),
    "netcommon_registry_refused": Metric(GAUGE, "NICs that are not what the registry wants, since the host or they cannot be so."),
    "netcommon_registry_unknown": Metric(GAUGE, "NICs of a Ganeti cluster that are here, and that the registry does not know."),
    "netcommon_registry_certificate_end_seconds": Metric(GAUGE, "When the certificate for the registry ends, seconds since the epoch."),
    "netcommon_registry_reaped_total": Metric(COUNTER, "Wanted NICs that were removed from the registry, being defined here no more."),
    "netcommon_agent_start_time_seconds": Metric(GAUGE, "When the agent started, seconds since the epoch."),
    "process_cpu_seconds_total": Metric(COUNTER, "User and system time that the agent has used."),
    "process_resident_memory_bytes": Metric(GAUGE, "Resident memory of the agent."),
    "process_open_fds": Metric(GAUGE, "Open file descriptors of the agent."),
}


class _Histogram:
    """One series of a histogram."""

    __slots__ = ("buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0


class Metrics:
    """Counters, gauges and histograms by name and labels; every method may be called by every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}

    def count(self, name: str, /, value: float = 1, **labels: object) -> None:
        """Adds ``value`` to a counter."""
        key = _labels(labels)
        with self._lock:
            series = self._values.setdefault(name, {})
            if key in series or len(series) < MOST:
                series[key] = series.get(key, 0) + value

    def gauge(self, name: str, /, value: float, **labels: object) -> None:
        """Sets a gauge; also a counter that is another's, such as the kernel's, read anew."""
        key = _labels(labels)
        with self._lock:
            series = self._values.setdefault(name, {})
            if key in series or len(series) < MOST:
                series[key] = value

    def observe(self, name: str, /, seconds: float, **labels: object) -> None:
        """Adds one observation to a histogram."""
        key = _labels(labels)
        with self._lock:
            series = self._histograms.setdefault(name, {})
            if key not in series and len(series) >= MOST:
                return
            histogram = series.setdefault(key, _Histogram())
            histogram.buckets[bisect_left(BUCKETS, seconds)] += 1
            histogram.sum += seconds

    def forget(self, name: str, /, **labels: object) -> None:
        """Takes out every series of ``name`` that has all of these labels: what it told of is gone. Without labels, all of them."""
        wanted = set(_labels(labels))
        with self._lock:
            for series in (self._values.get(name, {}), self._histograms.get(name, {})):
                for key in [key for key in series if wanted <= set(key)]:
                    del series[key]

    def value(self, name: str, /, **labels: object) -> float:
        """The value of a counter or gauge, or how often a histogram was observed; 0 where there is none."""
        key = _labels(labels)
        with self._lock:
            if key in (histograms := self._histograms.get(name, {})):
                return sum(histograms[key].buckets)
            return self._values.get(name, {}).get(key, 0)

    def series(self, name: str, /) -> list[tuple[Mapping[str, str], float]]:
        """Every series of a counter or gauge: labels and value."""
        with self._lock:
            return [(dict(key), value) for key, value in self._values.get(name, {}).items()]

    def observed(self, name: str, /) -> list[tuple[Mapping[str, str], list[int], float]]:
        """Every series of a histogram: labels, how many observations were in each of BUCKETS and beyond, and the sum of all (seconds)."""
        with self._lock:
            return [(dict(key), list(one.buckets), one.sum) for key, one in self._histograms.get(name, {}).items()]

    def text(self) -> str:
        """Everything, in the text format; metrics in the order of METRICS, series by their labels."""
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
            histograms = {
                name: {key: (list(one.buckets), one.sum) for key, one in series.items()} for name, series in self._histograms.items()
            }
        lines: list[str] = []
        for name in [*METRICS, *sorted({*values, *histograms} - set(METRICS))]:
            if name not in values and name not in histograms:
                continue
            metric = METRICS.get(name) or Metric(HISTOGRAM if name in histograms else "untyped", name)
            lines.append(f"# HELP {name} {_escaped(metric.help, quotes=False)}")
            lines.append(f"# TYPE {name} {metric.kind}")
            lines += [f"{name}{_shown(key)} {_number(value)}" for key, value in sorted(values.get(name, {}).items())]
            for key, (buckets, total) in sorted(histograms.get(name, {}).items()):
                lines += _histogram(name, key, buckets, total)
        return "".join(line + "\n" for line in lines)


def _histogram(name: str, key: Labels, buckets: list[int], total: float) -> list[str]:
    """The lines of one histogram: buckets are cumulative."""
    lines, seen = [], 0
    for bound, number in zip((*BUCKETS, float("inf")), buckets, strict=True):
        seen += number
        lines.append(f"{name}_bucket{_shown((*key, ('le', _number(bound))))} {seen}")
    return [*lines, f"{name}_sum{_shown(key)} {_number(total)}", f"{name}_count{_shown(key)} {seen}"]


def _labels(labels: Mapping[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _shown(key: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in key) + "}" if key else ""


def _escaped(text: str, quotes: bool = True) -> str:
    """Backslash, line feed, and in labels the quote, as the format has them; what is no UTF-8 as an escape."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
