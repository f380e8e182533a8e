"""Take in what a registry wants of a NIC: ends by both clocks, and whatever nobody can want."""

from __future__ import annotations

import pytest

from runtime.errors import NicInvalid
from runtime.nic import LOCAL, REGISTRY, Changed
from runtime.registry_wanted import MOST, RegistryOption, RegistryWanted, taken
from runtime.wanted import LONGEST, NOTHING, End, Entry, Moment, Wanted

NETWORK = "13264fb6-0667-415f-9a43-786dc01cbf25"
NOW = Moment("b", 100.0, 1e9)


def test_it_is_weaker_than_this_nodes_own() -> None:
    before = Wanted((Entry("rate_in", "8mbit"),))
    after = taken(before, RegistryWanted("e:7", (RegistryOption("rate_in", "4mbit"), RegistryOption("isolated", "yes")), NETWORK), NOW)
    assert (after.revision, after.network, after.local) == ("e:7", NETWORK, before.local)
    weakest_first = (Changed("rate_in", "4mbit", REGISTRY), Changed("isolated", "yes", REGISTRY), Changed("rate_in", "8mbit", LOCAL))
    assert after.force(NOW) == weakest_first
    assert after.by_registry.force(NOW) == weakest_first[:2]
    assert taken(after, RegistryWanted("e:8"), NOW) == before._replace(revision="e:8")


def test_an_end_is_counted_by_the_clock_of_the_boot_from_when_it_was_heard_of() -> None:
    asked = RegistryWanted("e:7", (RegistryOption("rate_in", "4mbit", 1e9 + 60),))
    after = taken(NOTHING, asked, NOW)
    assert after.registry == (Entry("rate_in", "4mbit", End(NOW, Moment("b", 160.0, 1e9 + 60))),)
    later = Moment("b", 130.0, 1e9 + 5000)  # the clock was set forward
    assert taken(after, asked, later) == after, "the same end"
    assert after.force(later) and not after.force(later._replace(monotonic=160.0))
    assert taken(NOTHING, asked, later) == Wanted(revision="e:0"), "it has ended, by a clock that may be wrong: this is not all of it"
    whole = taken(after, asked._replace(options=(RegistryOption("isolated", "yes"), *asked.options)), NOW)
    assert (whole.revision, whole.without(NOW), whole.without(later)) == ("e:7", whole, whole)
    assert whole.without(later._replace(monotonic=160.0)) == whole._replace(registry=whole.registry[:1], revision="e:0")
    own = Wanted((Entry("rate_in", "4mbit", End(NOW, Moment("b", 160.0, 1e9 + 60))),), whole.registry[:1], "e:7")
    assert own.without(later._replace(monotonic=160.0)) == own._replace(local=()), "of this node's own the registry says nothing"
    longer = asked._replace(options=(RegistryOption("rate_in", "4mbit", 1e9 + 9000),))
    assert taken(after, longer, later).registry[0].end == End(later, Moment("b", 4130.0, 1e9 + 9000))


@pytest.mark.parametrize(
    "asked",
    [
        RegistryWanted(""),
        RegistryWanted("7"),
        RegistryWanted(":7"),
        RegistryWanted("e:"),
        RegistryWanted("e:-7"),
        RegistryWanted("e:\u0667"),
        RegistryWanted("e e:7"),
        RegistryWanted("e" * 200 + ":7"),
        RegistryWanted("e:7", network="blue"),
        RegistryWanted("e:7", network=NETWORK.upper()),
        RegistryWanted("e:7", (RegistryOption("rate_in", "1mbit"),) * 2),
        RegistryWanted("e:7", tuple(RegistryOption(f"o{number}", "") for number in range(MOST + 1))),
        RegistryWanted("e:7", (RegistryOption("rate in", "1mbit"),)),
        RegistryWanted("e:7", (RegistryOption("", "1mbit"),)),
        RegistryWanted("e:7", (RegistryOption("rate_in", "1" * LONGEST),)),
        *(RegistryWanted("e:7", (RegistryOption("rate_in", "1mbit", until),)) for until in (-1.0, float("nan"), float("inf"))),
    ],
)
def test_what_nobody_can_want(asked: RegistryWanted) -> None:
    with pytest.raises(NicInvalid) as caught:
        taken(NOTHING, asked, NOW)
    assert str(caught.value).isprintable()
