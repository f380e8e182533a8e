"""Restore registries with an underlay in the mock cloud: histories that a search has found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mockcloud.scenarios.file import parsed
from mockcloud.scenarios.running import play

#: A node is forgotten after the copy was made; it gives up what it has, and the restored registry knows nothing of that.
AFTER_THE_COPY = """
nodes = 3
profile = "switched"
settings = '''
[agent]
resync = 20
start_delay = 2
reap_interval = 3
reap_grace = 2
[registry]
compare_delay = 20
compare_interval = 60
[nic]
spoof_guard = true
blackhole = true
endpoints = ["console", "exporter"]
'''
settle = 70.0

[underlay]
prefix = "fd12:3456:789a::/60"
zone = "hosts.example.com"
minimum_age = 4.0
ttl = 3
servers = 2
others = 0

[networks."blue"]
subnet = "192.0.2.0/24"
gateway = "192.0.2.254"

[[steps]]
at = 0.0
task = "create"
name = "web2"
node = "mock1"
nics = [{ "network" = "blue", "mode" = "routed", "link" = "guests" }]
start = true

[[steps]]
at = 0.0
fault = "backup"

[[steps]]
at = 9.91
fault = "forget"
nodes = "mock1"
for = 6.46

[[steps]]
at = 10.36
fault = "restore"
"""

#: The same between two restores.
BETWEEN_TWO = """
nodes = 3
settings = '''
[agent]
resync = 20
start_delay = 2
reap_interval = 3
reap_grace = 2
[registry]
compare_delay = 20
compare_interval = 60
[nic]
spoof_guard = true
blackhole = true
gateway_arp = true
endpoints = ["console"]
'''
settle = 70.0

[underlay]
prefix = "fd12:3456:789a::/60"
zone = "hosts.example.com"
minimum_age = 12.0
ttl = 8
servers = 1
others = 13

[networks."blue"]
subnet = "192.0.2.0/24"
gateway = "192.0.2.254"

[networks."six"]
subnet6 = "2001:db8::/64"
gateway6 = "2001:db8::ffff"

[[steps]]
at = 0.0
task = "create"
name = "web1"
node = "mock2"
nics = [{ "network" = "blue", "mode" = "routed", "link" = "guests" }]
start = true

[[steps]]
at = 0.0
fault = "backup"

[[steps]]
at = 10.45
fault = "restore"

[[steps]]
at = 13.08
fault = "forget"
nodes = "mock2"
for = 14.58

[[steps]]
at = 19.26
fault = "restore"
"""


@pytest.mark.parametrize(("seed", "scenario"), [(1449, AFTER_THE_COPY), (1470, BETWEEN_TWO)])
def test_no_name_leads_to_what_a_node_gave_up_that_was_forgotten_after_the_copy(tmp_path: Path, seed: int, scenario: str) -> None:
    """Hold names for nodes that have not spoken yet; this one has, and says that its address is not there."""
    result = play(parsed(scenario), str(tmp_path / "cloud"), seed)
    assert result.violations == (), result.outcomes
