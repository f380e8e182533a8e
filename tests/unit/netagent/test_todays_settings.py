"""Today's settings beside those of the agent's last reload."""

from __future__ import annotations

import os
from pathlib import Path

from netagent.todays_settings import Todays
from netcommon.settings.model import Settings
from runtime.paths import Paths


def test_what_the_file_says_today(tmp_path: Path) -> None:
    paths, ours = Paths.under(str(tmp_path)), Settings(nic={"isolated": True})
    os.makedirs(paths.etc)
    file, todays = Path(paths.config), Todays(paths)
    file.write_text("[nic]\nisolated = true\n")
    assert todays.get(ours) is ours, "the same settings are the same object: nothing is opened anew"
    file.write_text("[nic]\nisolated = false\n")
    found = todays.get(ours)
    assert found == Settings(nic={"isolated": False}) and todays.get(ours) is found and todays.usable(ours) is found
    file.write_text("[nic]\nbogus = 1\n")
    broken = todays.get(ours)
    assert broken.nic == {"isolated": True} and "unknown setting nic.bogus" in broken.broken
    assert todays.usable(ours) is ours
    file.unlink()
    assert todays.get(ours) == Settings()
