"""The settings [agent] and [repair]: what they may be, and that every kind of operation has its row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netcommon.operations.kinds import KINDS
from netcommon.settings.load import explain, load
from netcommon.settings.model import Settings
from netcommon.settings.schema import KEYS
from runtime.errors import SettingsInvalid
from runtime.paths import Paths


def paths_with(root: Path, text: str) -> Paths:
    paths = Paths.under(str(root))
    os.makedirs(paths.etc, exist_ok=True)
    Path(paths.config).write_text(text)
    return paths


def test_all_of_them(tmp_path: Path) -> None:
    text = """[agent]
resync = 5
start_delay = 1.5
reap_interval = 60
reap_grace = 0
reap_cap = 7
metrics_file = "/var/lib/prometheus/node-exporter/netcommon.prom"
metrics_listen = "[2001:db8:0::1]:09642"
[repair]
rule = "off"
guard = "report"
"""
    assert load(paths_with(tmp_path, text)) == Settings(
        agent_resync=5.0,
        agent_start_delay=1.5,
        agent_reap_interval=60.0,
        agent_reap_grace=0.0,
        agent_reap_cap=7,
        agent_metrics_file="/var/lib/prometheus/node-exporter/netcommon.prom",
        agent_metrics_listen="[2001:db8::1]:9642",
        repair={"rule": "off", "guard": "report"},
    )


def test_what_is_in_force_and_from_where(tmp_path: Path) -> None:
    rows = {row.key: (row.value, row.source) for row in explain(paths_with(tmp_path, "[repair]\nrule = 'off'\n"))}
    assert rows["repair.rule"] == ("off", "config.toml:2")
    assert rows["repair.guard"] == ("on", "default")
    assert rows["agent.start_delay"] == ("auto", "default")


@pytest.mark.parametrize("delay", ['"auto"', "0", "0.5", "86400"])
def test_delays(tmp_path: Path, delay: str) -> None:
    read = load(paths_with(tmp_path, f"[agent]\nstart_delay = {delay}\n")).agent_start_delay
    assert read == (delay.strip('"') if '"' in delay else float(delay))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("", ""),
        ("/run/netcommon/metrics", "/run/netcommon/metrics"),
        ("127.0.0.1:9642", "127.0.0.1:9642"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("[::]:65535", "[::]:65535"),
    ],
)
def test_addresses(tmp_path: Path, given: str, read: str) -> None:
    assert load(paths_with(tmp_path, f"[agent]\nmetrics_listen = '{given}'\n")).agent_metrics_listen == read


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("agent.resync = 0", "expected seconds, 1 to 86400"),
        ("agent.start_delay = 'soon'", 'expected "auto", or seconds, 0 to 86400'),
        ("agent.start_delay = true", 'expected "auto", or seconds, 0 to 86400'),
        ("agent.start_delay = nan", 'expected "auto", or seconds, 0 to 86400'),
        ("agent.reap_cap = 0", "expected a whole number, 1 to 1000000"),
        ("agent.reap_grace = -1", "expected seconds, 0 to 86400"),
        ("agent.metrics_file = 'metrics.prom'", 'expected an absolute path such as "/var/lib/prometheus/node-exporter/netcommon.prom"'),
        *(
            (f"agent.metrics_listen = {value!r}", "expected an address with a port")
            for value in (
                *("localhost:9642", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "::1:9642", "[::1]", "[127.0.0.1]:1"),
                *("127.0.0.1:+1", "127.0.0.1:\u0661", "/", "/run/", "/" + "x" * 107, ":9642", "[]:1", 9642),
            )
        ),
        *((f"registry.store = {value!r}", "expected an address such as") for value in ("/var/lib/x", "http://a", "etcd://\u00e4", 5)),
        ("repair.rule = 'never'", 'expected "off" or "report" or "on"'),
        ("repair.rule = false", 'expected "off" or "report" or "on"'),
        ("repair.rulez = 'on'", "unknown setting repair.rulez; did you mean rule?"),
        ("agent.resnyc = 3", "unknown setting agent.resnyc; did you mean resync?"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(paths_with(tmp_path, line + "\n"))
    (told,) = str(caught.value).split("\n")
    assert told.startswith("config.toml:1: ") and why in told and told.isprintable()


def test_every_kind_of_operation_has_a_row() -> None:
    """In the order of the kinds, which is about that of an up."""
    assert [key.name for key in KEYS if key.table == "repair"] == list(KINDS)
