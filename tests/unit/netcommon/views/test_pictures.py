"""What docs/seeing.md shows is what the renderers make today, byte for byte; and its tables are the schemas."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from netcommon.views.explain import model as explain
from netcommon.views.topology import document, model
from tests.support.seeing import DOCS, fits, rows

PICTURES = DOCS / "pictures"
SVG = "{http://www.w3.org/2000/svg}"

#: The objects of the schemas, as docs/seeing.md calls them.
TREE: dict[str, type] = {"node": model.NodeView, "segment": model.Segment, "port": model.Port, "nic": model.NicView, "drift": model.Drift}
EXPLAIN: dict[str, type] = {"explanation": explain.Explanation, "origin": explain.Origin, "step": explain.Step}


def maker() -> ModuleType:
    """docs/pictures/make.py."""
    spec = spec_from_file_location("pictures_make", PICTURES / "make.py")
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("size", [5, 50, 300])
def test_the_pictures_are_as_they_are_made(size: int) -> None:
    """Run docs/pictures/make.py where a renderer has changed, and look at them."""
    for name, content in maker().files(size).items():
        assert (PICTURES / name).read_text("utf-8") == content, name


def test_nothing_else_lies_among_the_pictures(page: str) -> None:
    make = maker()
    named = {f"graph-{size}.svg" for size in make.SIZES} | {"make.py", "rooms.py", "explain.txt"}
    named |= {"top.svg", "top.txt", "events.txt", *(name for *_, name in make.TRACED)}
    named |= {f"{what}-5.{end}" for what, end in (("tree", "txt"), ("tree", "json"), ("graph", "dot"))}
    named |= {"pages.py", "registry-pages.png"}  # of the registry's pages
    assert {path.name for path in PICTURES.iterdir() if path.is_file()} == named


def test_the_examples_of_the_page_are_those(page: str) -> None:
    make = maker()
    made = {name: (PICTURES / name).read_text("utf-8") for name in make.QUOTED.values()}
    assert make.quoted(page, made) == page
    changed = make.quoted(page, {name: f"first of {name}\n\nlast\n" for name in made})
    assert all(f"    $ {command}\n    first of {name}\n\n    last\n" in changed for command, name in make.QUOTED.items())
    assert changed.count("\n## ") == page.count("\n## ") and "A line for each NIC" in changed and "A NIC is named by" in changed


@pytest.mark.parametrize("size", [5, 50, 300])
def test_every_nic_is_in_the_picture(size: int) -> None:
    """The file is XML that refers to nothing outside itself; each tap and each guest is in it."""
    text = (PICTURES / f"graph-{size}.svg").read_text("utf-8")
    root = ElementTree.fromstring(text)  # noqa: S314 - made by ourselves
    shown = [element.text for element in root.iter(f"{SVG}text")]
    assert {f"tap{number}" for number in range(size)} <= set(shown)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sum(": drifted (" in title for title in titles) == len(range(3, size, 19))
    assert re.findall(r"(?:href|src|url|@import)[^ ]*", text) == []


@pytest.mark.parametrize(("schema", "objects"), [(document.SCHEMA, TREE), (explain.SCHEMA, EXPLAIN)], ids=[document.SCHEMA, explain.SCHEMA])
def test_the_schemas_are_documented(page: str, schema: str, objects: dict[str, type[Any]]) -> None:
    """Field by field, in their order: who changes one sees this fail, and thinks of the version."""
    said = rows(page, schema)
    for name, kind in objects.items():
        assert [field for of, field, _value in said if of == name] == list(kind._fields)
    assert {of for of, _field, _value in said} == {"document", *objects}


def valid(value: dict[str, Any], page: str) -> bool:
    """Whether a document is as the page says."""
    said = rows(page, value["schema"])
    top = {field: of_field for name, field, of_field in said if name in ("document", "node")}
    return set(value) == set(top) and all(fits(value[field], of_field, said) for field, of_field in top.items())


def test_the_documents_are_as_documented(page: str, tmp_path: Path) -> None:
    shown = json.loads((PICTURES / "tree-5.json").read_text("utf-8"))
    assert valid(shown, page)
    sim = maker().machine(str(tmp_path), 5)
    each = [explain.explained(sim.node, sim.host.snapshot(), record) for record in sim.records()]
    made = explain.document(each)
    assert valid(json.loads(json.dumps(made)), page)
    del shown["segments"][1]["nics"][0]["mac"]
    assert not valid(shown, page)
