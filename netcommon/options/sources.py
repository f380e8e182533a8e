"""Find the options of a NIC where a site gives them.

In rising order of precedence: the default, the settings' [nic], the settings' [networks.NAME] (by the network's name or UUID), the
network's tags, the instance's tags for all of its NICs, those for this one, and what was changed while the NIC ran: by a registry, then on
this node. The syntax of tags is in netcommon.options.tags, which is imported only where somebody gives an option.
"""

from __future__ import annotations

from netcommon.options.model import COMMUNICATION_OPTIONS, DEFAULTS, INSTANCE_COMMUNICATION, Options, mode_of
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Protocol

    from netcommon.options.tags import Given
    from runtime.nic import Nic

    class Asking(Protocol):
        """The part of the settings (netcommon.settings.model) that is about options."""

        @property
        def tag_prefix(self) -> str: ...
        @property
        def nic(self) -> Mapping[str, Any]: ...
        @property
        def networks(self) -> Mapping[str, Mapping[str, Any]]: ...


def options_of(nic: Nic, settings: Asking) -> Options:
    """The effective options of ``nic``. Raises NicInvalid for a tag with our prefix that is not understood.

    An instance communication NIC has the defaults, but for COMMUNICATION_OPTIONS.
    """
    start = settings.tag_prefix + ":"
    tagged = any(tag.startswith(start) for tag in (*nic.tags, *nic.network.tags))
    if not (tagged or settings.nic or settings.networks or nic.wanted):
        return DEFAULTS
    return DEFAULTS._replace(**{name: each.value for name, each in strongest(nic, settings).items()})


def strongest(nic: Nic, settings: Asking) -> dict[str, Given]:
    """Give each option that any place gives, from the strongest place, of those that the NIC can have. Raises NicInvalid."""
    found = {each.name: each for each in given(nic, settings)}
    if mode_of(nic) != INSTANCE_COMMUNICATION:
        return found
    return {name: each for name, each in found.items() if name in COMMUNICATION_OPTIONS}


def of_settings(nic: Nic, settings: Asking) -> dict[str, Any]:
    """Collect the options that the settings give ``nic``, whatever stronger places say."""
    found = dict(settings.nic)
    if settings.networks:
        from netcommon.options.networks import tables_of

        for _place, table in tables_of(nic.network, settings.networks):
            found |= table
    return found


def given(nic: Nic, settings: Asking) -> Iterator[Given]:
    """Every option that any place gives, in rising order of precedence: the last one of a name counts. Raises NicInvalid."""
    from netcommon.options.networks import tables_of
    from netcommon.options.tags import Given, of_another, of_changed, of_tags, selected, selectors  # few NICs have options

    for name, value in settings.nic.items():
        yield Given(name, value, "[nic]")
    network = nic.network
    for place, table in tables_of(network, settings.networks):
        for name, value in table.items():
            yield Given(name, value, place)
    start = settings.tag_prefix + ":"
    tags = [tag for tag in network.tags if tag.startswith(start)]
    if tags:
        yield from of_tags("NETWORK_TAGS", [(tag, tag[len(start) :]) for tag in tags])
    tags = [tag for tag in nic.tags if tag.startswith(start)]
    if tags:
        for_all, for_this = (selected(tags, start, names) for names in (["*"], selectors(nic)))
        for tag in sorted({*tags}.difference(tag for tag, _rest in (*for_all, *for_this))):
            of_another(tag, tag[len(start) :])
        yield from of_tags("TAGS", for_all)
        yield from of_tags("TAGS", for_this)
    if nic.wanted:
        yield from of_changed(nic.wanted, nic.revision)
