"""From a clone in which nothing is installed, every example says in one line how to install it, and exits 2."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.name for p in (ROOT / "examples").glob("*.py") if not p.name.startswith("_"))
COMMAND = re.search(r'^COMMANDS = "(.*)"$', (ROOT / "examples/_setup.py").read_text(), re.MULTILINE)[1]


@pytest.fixture
def clone(tmp_path):
    """The examples beside the rest of the clone, as git gives it."""
    for folder in "examples", "models", "minivt":
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("folder", [".", "examples"])
def test_without_packages(clone, example, folder):
    """-S keeps site-packages out, so nothing but the standard library is there."""
    result = subprocess.run([sys.executable, "-S", clone / "examples" / example, "hello"], cwd=clone / folder,
                            capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"]})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{example}: ") and result.stderr.count("\n") == 1, result.stderr
    assert COMMAND in result.stderr
