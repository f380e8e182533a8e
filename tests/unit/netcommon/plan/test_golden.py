"""The planner against its golden folders: tests/golden/CASE/environ in, tests/golden/CASE/plan out; ``python -m tests.golden`` rewrites."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from netcommon.cli.group import netcommon
from tests import golden

CASES = golden.cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_plan_is_the_folders(case: Path) -> None:
    assert golden.rendered(case) == (case / "plan").read_text()


def test_folders_are_many_and_different() -> None:
    assert len(CASES) >= 30
    inputs = [(case / "environ").read_bytes() for case in CASES]
    assert len(set(inputs)) == len(inputs)


def test_update_rewrites_what_differs(tmp_path: Path) -> None:
    """The command changes a plan that is out of date, names it, and leaves the others alone."""
    old, good = tmp_path / "old", tmp_path / "good"
    shutil.copytree(CASES[0], old)
    shutil.copytree(CASES[1], good)
    (old / "plan").write_text("something else\n")
    assert golden.update(tmp_path) == ["old"]
    assert (old / "plan").read_bytes() == (CASES[0] / "plan").read_bytes()
    assert golden.update(tmp_path) == []


NOBODY = 65534


def planned(environ: bytes) -> list[dict[str, object]]:
    """What ``netcommon plan --json`` says is done at up, less the words."""
    done = CliRunner().invoke(netcommon, ["plan", "--json", "--env-file", "-"], input=environ)
    assert done.exit_code == 0, done.output
    return [{name: value for name, value in step.items() if name != "does"} for step in json.loads(done.stdout)["up"]]


def test_command_gives_the_folders_plan_without_root(tmp_path: Path) -> None:
    """In a process that has given root up, where the tests have it."""
    plans_of = {case.name: (case / "plan").read_text().splitlines() for case in CASES}
    expected = {name: [json.loads(line) for line in lines if line.startswith("{")] for name, lines in plans_of.items()}
    environs = {case.name: (case / "environ").read_bytes() for case in CASES}
    for environ in environs.values():
        planned(environ)  # so that the command's modules are there: the checkout may be root's alone
    with (tmp_path / "plans").open("w+") as plans:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                json.dump({name: planned(environ) for name, environ in environs.items()}, plans)
                plans.flush()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        plans.seek(0)
        assert json.load(plans) == expected
