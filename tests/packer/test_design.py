"""The design of the packer is true of its files: it names every module, and every file that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tidemill"
PACKER = PACKAGE / "decide" / "packer"
NAMED = set(re.findall(r"`([\w/]+\.py)[`:]", (ROOT / "designs" / "0002-solver.md").read_text()))


def test_every_file_that_the_design_names_exists():
    folders = (PACKER, PACKAGE, ROOT)
    assert not [name for name in NAMED if not any((folder / name).exists() for folder in folders)]


def test_the_design_names_every_module_of_the_packer():
    named = {Path(name).name for name in NAMED}
    assert {path.name for path in PACKER.glob("*.py")} - named == set()
