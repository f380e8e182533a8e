"""Templates: which file is taken, which is refused, and what one may do with what it is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netcommon.templates import LONGEST, SHIPPED, read, render
from runtime.errors import SettingsInvalid


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site's folder, and in it one template."""
    (tmp_path / "ovs").mkdir()
    (tmp_path / "ovs/mine.j2").write_text("mine {{ word }}\n")
    return tmp_path


def source(site: Path, shipped: str = SHIPPED):  # type: ignore[no-untyped-def]
    return lambda name: read(name, str(site), shipped)


def test_the_sites_own_come_first(site: Path) -> None:
    shipped = site / "shipped"
    (shipped / "ovs").mkdir(parents=True)
    for name in ("mine", "ours"):
        (shipped / f"ovs/{name}.j2").write_text("ours")
    assert read("ovs/mine.j2", str(site), str(shipped)) == "mine {{ word }}\n"
    assert read("ovs/ours.j2", str(site), str(shipped)) == "ours"
    with pytest.raises(SettingsInvalid, match=r"there is no template ovs/none\.j2: .*/ovs/none\.j2 does not exist"):
        read("ovs/none.j2", str(site), str(shipped))


def test_ours_are_there(site: Path) -> None:
    """Each that is shipped can be read by its name."""
    found = [str(path.relative_to(SHIPPED)) for path in Path(SHIPPED).rglob("*.j2")]
    assert "ovs/spoof-guard.j2" in found
    assert all(read(name, str(site)) for name in found)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "ovs/../../x", "ovs//x", "ovs/.x", "ovs/x y", "ovs/x\n", "ovs/ü", "ovs/x\0"])
def test_what_is_no_name(site: Path, name: str) -> None:
    with pytest.raises(SettingsInvalid, match="not a name of a template"):
        read(name, str(site))


def test_others_can_write_it(site: Path) -> None:
    """It would decide what root does: it is not used, and ours does not take its place."""
    os.chmod(site / "ovs/mine.j2", 0o666)
    with pytest.raises(SettingsInvalid, match=r"is not used: .* can be written by everybody"):
        read("ovs/mine.j2", str(site))
    (site / "ovs/spoof-guard.j2").symlink_to("mine.j2")
    with pytest.raises(SettingsInvalid, match="is not used"):
        read("ovs/spoof-guard.j2", str(site))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (LONGEST + 1)], ids=["no text", "too long"])
def test_what_is_no_template(site: Path, content: bytes) -> None:
    (site / "ovs/bad.j2").write_bytes(content)
    with pytest.raises(SettingsInvalid, match=r"ovs/bad\.j2"):
        read("ovs/bad.j2", str(site))


def test_a_folder_is_no_template(site: Path) -> None:
    (site / "ovs/bad.j2").mkdir()
    with pytest.raises(SettingsInvalid, match="not a regular file"):
        read("ovs/bad.j2", str(site))


def test_rendering(site: Path) -> None:
    (site / "ovs/all.j2").write_text("{% include 'ovs/mine.j2' %}\n{% for one in many %}\n  {{ one }}\n{% endfor %}\n# {{ '<&>' }}\n")
    text = render("ovs/all.j2", {"word": "a", "many": ["b", "c"]}, source(site))
    assert text == "mine a\n  b\n  c\n# <&>\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ unknown }}", "'unknown' is undefined"),
        ("{{ word.unknown.more }}", "has no attribute"),
        ("a\nb {% if %}", "line 2"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ word + 1 }}", "TypeError"),
        ("{% include 'ovs/none.j2' %}", "there is no template ovs/none.j2"),
        ("{{ word.__class__.__mro__ }}", "SecurityError"),
        ("{{ ''.__class__ }}", "SecurityError"),
        ("{% set _ = many.append(1) %}", "SecurityError"),
        ("{{ 'x' * 2000000 }}", "too long a text"),
        ("{% for a in range(10000000) %}{% endfor %}", "OverflowError"),
    ],
)
def test_what_goes_wrong_in_it(site: Path, text: str, said: str) -> None:
    """With the template's name, whatever the error."""
    (site / "ovs/bad.j2").write_text(text)
    with pytest.raises(SettingsInvalid, match=r"ovs/bad\.j2|ovs/none\.j2") as caught:
        render("ovs/bad.j2", {"word": "a", "many": []}, source(site))
    assert said in str(caught.value)


def test_given_words_are_no_template(site: Path) -> None:
    """What users choose is data: it is never read as a template's language."""
    assert render("ovs/mine.j2", {"word": "{{ 7 * 7 }}"}, source(site)) == "mine {{ 7 * 7 }}\n"
