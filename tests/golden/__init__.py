"""Golden cases of the planner: a folder each, the NIC's variables in ``environ`` (NAME=VALUE lines) and the plan of them in ``plan``.

Whoever means to change what a NIC gets runs ``python -m tests.golden`` and reads the difference that git shows.
"""

from __future__ import annotations

import json
from pathlib import Path

from netcommon.operations.base import to_json
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment

HERE = Path(__file__).parent


def cases(root: Path = HERE) -> list[Path]:
    """The folders, sorted."""
    return sorted(path.parent for path in root.glob("*/environ"))


def variables(case: Path) -> dict[str, str]:
    """What ``environ`` says; lines that begin with # are comments."""
    lines = [line for line in (case / "environ").read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def rendered(case: Path) -> str:
    """The plan: what would be typed, then each operation as the record holds it, less what only the host knows."""
    nic = nic_from_environment(variables(case))
    operations = plan(nic, Settings())
    stored = [{name: value for name, value in to_json(one).items() if name not in one.CHOSEN} for one in operations]
    lines = [one.describe() for one in operations] or ["nothing of ours"]
    return "\n".join([*lines, "", *(json.dumps(one) for one in stored)]).rstrip("\n") + "\n"


def update(root: Path = HERE) -> list[str]:
    """Rewrites the plans that differ, and returns the names of their folders."""
    changed = []
    for case in cases(root):
        path, text = case / "plan", rendered(case)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(case.name)
    return changed
