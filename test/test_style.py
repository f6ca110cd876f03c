"""What every source file keeps: length, width, an opening docstring, imports one way, vendors in their places."""
import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES, COLUMNS = 500, 120
FOLDERS = ("minivt", "models", "examples", "test", "docs", "goldens")
FILES = [ROOT / "setup.py", *sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]
SHIPPED = [file for file in FILES if file.relative_to(ROOT).parts[0] in ("minivt", "models")]

# A quoted device name, as in to("cuda:0"), is what a user writes and no vendor's business.
VENDOR = re.compile(r"""(?<!["'\w])(nvidia|cuda|nvrtc|ptx|hopper|wgmma|cublas|amd|rocm|hip|mfma|opencl|pocl|apple)\b""",
                    re.IGNORECASE)
VENDORS_ALLOWED = ("minivt/backends/__init__.py",              # the table of backends
                   "minivt/backends/cuda", "minivt/codegen/render/cuda", "minivt/codegen/target.py",
                   "minivt/codegen/layout.py")                 # layouts of a Target's instructions, by their names


def name(file):
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_length_width_and_docstring(file):
    text = file.read_text()
    lines = text.splitlines()
    assert len(lines) < LINES
    wide = [f"{number}: {len(line)} columns" for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    assert not wide
    assert not any(line != line.rstrip() or "\t" in line for line in lines)
    assert ast.get_docstring(ast.parse(text)), "a file opens with what it is for and not for"


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_vendors_stay_in_their_places(file):
    if not name(file).startswith(VENDORS_ALLOWED):
        found = VENDOR.search(file.read_text())
        assert found is None, found


# The parts in the order in which they may know each other: each imports itself and what stands before it. Imports
# inside functions, of a few names that are needed late, do not count.
LAYERS = ("errors", "dtypes", "ops", "graph", "symbolic", "scan", "codegen", "schedule", "runtime", "backends",
          "tensor", "nn", "models", "bench")
SURFACE = {"broadcasting", "constants", "contraction", "convolution", "creation", "cumulative", "elementwise",
           "functional", "indexing", "interpolation", "movement", "ordering", "padding", "pooling", "promotion",
           "random", "real_functions", "reduction", "selection", "spectral", "variable"}


def layer(part):
    return LAYERS.index("tensor" if part in SURFACE else part)


def imported_parts(file):
    """The parts of minivt that a module imports when it is loaded."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            package, *path = statement.module.split(".")
            if package == "minivt":
                yield from path[:1] or (alias.name for alias in statement.names if alias.name in {*LAYERS, *SURFACE})


@pytest.mark.parametrize("file", [f for f in SHIPPED if f.parent.name != "minivt" or f.stem != "__init__"], ids=name)
def test_imports_point_one_way(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    own = layer("models" if parts[0] == "models" else parts[1])
    above = [part for part in imported_parts(file) if layer(part) > own]
    assert not above


def test_files_are_text_that_git_can_merge():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git repository")
    for file in tracked.stdout.split("\0")[:-1]:
        path = ROOT / file
        if path.exists() and path.suffix in (".py", ".md", ".toml", ".json", ""):
            data = path.read_bytes()
            assert b"\r\n" not in data and (not data or data.endswith(b"\n")), file
