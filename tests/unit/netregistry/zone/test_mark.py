"""The mark of a zone: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest

from netregistry.zone.mark import Mark, name_of, read

OURS = Mark("fd00:1:2::/48", "0a1b2c3d", 57)


@pytest.mark.parametrize(
    "mark",
    [
        OURS,
        OURS._replace(part=3),
        OURS._replace(over="0a1b2c3c"),
        OURS._replace(part=3, over="0a1b2c3c"),
        OURS._replace(generation=0),
        OURS._replace(generation=2**63),
    ],
)
def test_what_is_written_is_read(mark: Mark) -> None:
    assert read(mark.strings) == mark


def test_its_text_is_of_a_zone_file() -> None:
    assert OURS.text == '"netcommon" "registry=fd00:1:2::/48" "epoch=0a1b2c3d" "generation=57"'
    assert OURS._replace(part=2).text.endswith(' "generation=57" "part=2"')
    assert OURS._replace(part=2, over="0a1b2c3c").text.endswith(' "generation=57" "part=2" "over=0a1b2c3c"')
    assert name_of("u.example.net") == "_generation.u.example.net"


@pytest.mark.parametrize(
    "strings",
    [
        (),
        ("netcommon",),
        ("netcommon", "cluster=a.example.net", "instance=web.example.com"),
        ("v=spf1 -all",),
        (*OURS.strings[:-1], "generation=x"),
        (*OURS.strings[:-1], "generation=057"),
        (*OURS.strings[:-1], "generation=-1"),
        (*OURS.strings[:-1], "generation=\u0665"),
        (*OURS.strings[:-1], "generation=" + "9" * 5000),
        (*OURS.strings, "part=0"),
        (*OURS.strings, "over="),
        (*OURS.strings, "over=0a1b2c3c", "part=2"),
        (*OURS.strings, "more"),
        ("other", *OURS.strings[1:]),
        ("netcommon", 'registry=a"b', *OURS.strings[2:]),
        ("netcommon", "registry=a\\b", *OURS.strings[2:]),
        ("netcommon", "registry=a\nb", *OURS.strings[2:]),
    ],
)
def test_anything_else_is_none(strings: tuple[str, ...]) -> None:
    assert read(strings) is None
