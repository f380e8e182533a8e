"""The agent's metrics: Prometheus' text format 0.0.4, held against a reader of that format, and what may be counted at all."""

from __future__ import annotations

import ast
import re
import threading

from hypothesis import example, given
from hypothesis import strategies as st

from netagent.observe import metrics as module
from netagent.observe.metrics import BUCKETS, METRICS, Metrics
from tests.support.bootstrap import ROOT
from tests.support.sources import sources

LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)\Z')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"')

UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Sample = tuple[str, tuple[tuple[str, str], ...]]


def read(text: str) -> dict[Sample, float]:
    """A reader of the format, written from its description and knowing nothing of ours. Every line must be good."""
    found: dict[Sample, float] = {}
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            assert re.match(r"# (HELP \w+ .*|TYPE \w+ (counter|gauge|histogram|untyped))\Z", line), line
            continue
        match = LINE.match(line)
        assert match, line
        labels = [(name, re.sub(r"\\.", lambda one: UNESCAPED[one[0]], value)) for name, value in LABEL.findall(match[2] or "")]
        sample = (match[1], tuple(sorted(labels)))
        assert sample not in found, f"twice: {line}"
        found[sample] = float(match[3])
    return found


def test_nothing_counted_is_nothing_said() -> None:
    assert Metrics().text() == ""


def test_counters_gauges_and_what_they_are() -> None:
    metrics = Metrics()
    metrics.count("netcommon_hook_calls_total", door="kvm-ifup", mode="bridged", outcome="ok")
    metrics.count("netcommon_hook_calls_total", 2, mode="bridged", outcome="ok", door="kvm-ifup")
    metrics.gauge("netcommon_nics", 5000, state="up")
    metrics.gauge("netcommon_nics", 4999, state="up")
    assert metrics.text() == (
        "# HELP netcommon_hook_calls_total Calls of the hooks, by door, mode of the NIC, outcome, and path: warm or cold.\n"
        "# TYPE netcommon_hook_calls_total counter\n"
        'netcommon_hook_calls_total{door="kvm-ifup",mode="bridged",outcome="ok"} 3\n'
        "# HELP netcommon_nics NICs on record, by the state of the record.\n"
        "# TYPE netcommon_nics gauge\n"
        'netcommon_nics{state="up"} 4999\n'
    )


def test_a_histogram_is_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.001, 0.0011, 0.3, 99.0):
        metrics.observe("netcommon_hook_seconds", seconds, door="kvm-ifup", mode="routed")
    found = read(metrics.text())
    labels = (("door", "kvm-ifup"), ("mode", "routed"))
    buckets = {dict(key)["le"]: value for (name, key), value in found.items() if name == "netcommon_hook_seconds_bucket"}
    assert list(buckets) == [*(format(bound, "g") for bound in BUCKETS), "+Inf"]
    assert (buckets["0.001"], buckets["0.0025"], buckets["0.25"], buckets["0.5"], buckets["30"], buckets["+Inf"]) == (2, 3, 3, 4, 4, 5)
    assert found["netcommon_hook_seconds_count", labels] == 5
    assert abs(found["netcommon_hook_seconds_sum", labels] - 99.3021) < 1e-9
    assert metrics.value("netcommon_hook_seconds", door="kvm-ifup", mode="routed") == 5


@example({"instance": ""}, float("-inf"))
@given(st.dictionaries(st.sampled_from(["instance", "device", "reason"]), st.text(), min_size=1), st.floats(allow_nan=False))
def test_every_label_and_value_comes_back(labels: dict[str, str], value: float) -> None:
    """Guests' names are others' choice: quotes, backslashes, line ends."""
    metrics = Metrics()
    metrics.gauge("netcommon_guard_dropped_total", value, **labels)
    ((sample, said),) = read(metrics.text()).items()
    assert said == value
    assert sample == ("netcommon_guard_dropped_total", tuple(sorted((name, _shown(text)) for name, text in labels.items())))


def _shown(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def test_what_is_no_utf8_is_an_escape() -> None:
    metrics = Metrics()
    metrics.gauge("netcommon_nics", 1, state="\udcff")
    assert metrics.text().encode().splitlines()[-1] == b'netcommon_nics{state="\\\\udcff"} 1'


def test_what_is_gone_is_forgotten() -> None:
    metrics = Metrics()
    for device in ("tap0", "tap1"):
        for reason in ("arp", "ip"):
            metrics.gauge("netcommon_guard_dropped_total", 7, instance="web", device=device, reason=reason)
    metrics.forget("netcommon_guard_dropped_total", device="tap0")
    assert {dict(key)["device"] for _name, key in read(metrics.text())} == {"tap1"}
    metrics.forget("netcommon_guard_dropped_total")
    assert metrics.value("netcommon_guard_dropped_total", instance="web", device="tap1", reason="ip") == 0
    metrics.forget("netcommon_drift_total", kind="rule")


def test_the_memory_has_an_end() -> None:
    metrics = Metrics()
    for number in range(module.MOST + 10):
        metrics.count("netcommon_drift_total", kind=number)
        metrics.observe("netcommon_resync_seconds", 1.0, kind=number)
    metrics.count("netcommon_drift_total", kind=0)
    assert metrics.value("netcommon_drift_total", kind=0) == 2
    assert metrics.text().count("netcommon_drift_total{") == module.MOST
    assert metrics.text().count("netcommon_resync_seconds_count{") == module.MOST


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.count("netcommon_drift_total", kind="rule")
            metrics.observe("netcommon_resync_seconds", 0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        read(metrics.text())
    assert metrics.value("netcommon_drift_total", kind="rule") == metrics.value("netcommon_resync_seconds") == 8000


def test_the_agent_counts_nothing_else() -> None:
    """Every name that the agent gives to a method of Metrics is in METRICS, and every metric there is is given by somebody."""
    given_names: set[str] = set()
    for source in sources("netagent"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"(netcommon|process)_[a-z_]+", node.value):
                given_names.add(node.value)
    assert given_names == set(METRICS)


def test_every_metric_is_documented() -> None:
    rows = [line.split(" | ") for line in (ROOT / "docs/agent.md").read_text().splitlines() if re.match(r"\| `(netcommon|process)_", line)]
    said = {row[0].removeprefix("| `").rstrip("`").split("{")[0]: (row[1], row[2].removesuffix(" |")) for row in rows}
    assert said == {name: (metric.kind, metric.help.rstrip(".")) for name, metric in METRICS.items()}
