"""Make netcommon/operations/kinds.py from the classes of operations: python3 -m netcommon.operations.catalogue

Run it where there is a new operation, or one has another KIND or REPAIRED; docs/reference/make.py runs it first. A class is an operation
if it has a KIND of its own: nothing else names it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from netcommon.operations.base import Operation
from netcommon.operations.kinds import KINDS
from runtime.modules import load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FOLDER = Path(__file__).parent
FILE = FOLDER / "kinds.py"
PACKAGE = "netcommon.operations."

TEXT = '''"""Where each kind of operation is, and what of a NIC it is.

Made by netcommon.operations.catalogue from the classes: change those, and run it. A hook must not import all operations to find one, nor
the settings to have a row in [repair] for each.
"""

from __future__ import annotations

#: kind -> module and class. A kind stays readable for ever: records of older versions name it.
KINDS = {{
{kinds}}}

#: kind -> what of a NIC it is (Operation.REPAIRED).
REPAIRED = {{
{repaired}}}
'''


def modules() -> list[str]:
    """Return the names of the modules that may have operations, below this package."""
    names = (".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in sorted(FOLDER.rglob("*.py")))
    return [name for name in names if not name.endswith("__init__") and name not in ("catalogue", FILE.stem)]


def found() -> list[type[Operation]]:
    """Return the class of each kind, in the order in which the kinds are listed."""
    classes = [made for name in modules() for made in vars(load(PACKAGE + name)).values() if _is_operation(made, PACKAGE + name)]
    return ordered(classes, list(KINDS))


def _is_operation(made: object, module: str) -> bool:
    return isinstance(made, type) and Operation in made.__mro__ and made.__module__ == module and isinstance(vars(made).get("KIND"), str)


def ordered(classes: Iterable[type[Operation]], known: Sequence[str]) -> list[type[Operation]]:
    """Return the classes in the order of ``known``; a new one stands behind the others of its module, or else last.

    The order is about that of an up, and that in which people read them. Raises ValueError for two classes of one kind.
    """
    by_kind: dict[str, type[Operation]] = {}
    for made in classes:
        if made.KIND in by_kind:
            raise ValueError(f"{by_kind[made.KIND].__qualname__} and {made.__qualname__} are both of the kind {made.KIND}")
        by_kind[made.KIND] = made
    result = [by_kind[name] for name in known if name in by_kind]
    for made in by_kind.values():
        if made.KIND not in known:
            beside = [place for place, each in enumerate(result, 1) if each.__module__ == made.__module__]
            result.insert(max(beside, default=len(result)), made)
    return result


def text() -> str:
    """Return what the file is to hold."""
    classes = found()
    places = {made.KIND: (made.__module__.removeprefix(PACKAGE), made.__name__) for made in classes}
    kinds = {name: f'("{module}", "{attribute}")' for name, (module, attribute) in places.items()}
    return TEXT.format(kinds=_rows(kinds), repaired=_rows({made.KIND: f'"{made.REPAIRED}"' for made in classes}))


def _rows(values: Mapping[str, str]) -> str:
    return "".join(f'    "{name}": {value},\n' for name, value in values.items())


def main() -> int:
    """Write the file."""
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
