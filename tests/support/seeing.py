"""The tables of docs/seeing.md, and whether a document is as they say."""

from __future__ import annotations

from tests.support.bootstrap import ROOT

DOCS = ROOT / "docs"


def rows(page: str, schema: str) -> list[tuple[str, str, str]]:
    """List object, field and value of the rows of one schema's table."""
    lines = iter(page[page.index(f"`{schema}`, version") :].splitlines()[2:])
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.append((cells[0], cells[1].strip("`"), cells[2]))
    return found[2:]


def fits(value: object, said: str, page_rows: list[tuple[str, str, str]]) -> bool:
    """Say whether a value is what its table says."""
    if said.startswith("list of "):
        return isinstance(value, list) and all(fits(each, said.removeprefix("list of "), page_rows) for each in value)
    if said == "number or null":
        return value is None or fits(value, "number", page_rows)
    plain: dict[str, type | tuple[type, ...]] = {"text": str, "truth": bool, "number": (int, float)}
    if said in plain:
        return isinstance(value, plain[said]) and (said != "number" or not isinstance(value, bool))
    assert isinstance(value, dict), said
    wanted = {field: of_field for name, field, of_field in page_rows if name == said}
    return set(value) == set(wanted) and all(fits(value[field], of_field, page_rows) for field, of_field in wanted.items())
