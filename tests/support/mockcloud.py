"""Run the command line of the mock cloud in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from mockcloud.cli.group import mockcloud
from tests.support.bootstrap import ROOT

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs" / "schemas").glob("*.json")}


class Mockcloud:
    """``run("create", "2")`` runs ``mockcloud create 2`` on the cloud of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, status: int = 0) -> str:
        """Give what it has printed on stdout; where it fails, on stderr."""
        result = CliRunner(env={"MOCKCLOUD": str(self.folder)}).invoke(mockcloud, words, prog_name="mockcloud", catch_exceptions=False)
        assert result.exit_code == status, f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result.stdout if status == 0 else result.stderr

    def json(self, *words: str) -> Any:
        """Give the document, which is as its schema says."""
        said = json.loads(self(*words, "--json"))
        schema = SCHEMAS[said["schema"]]
        Draft202012Validator(schema).validate(said)
        assert set(said) == set(schema["properties"]) and said["schema"].startswith("mockcloud-")
        return said
