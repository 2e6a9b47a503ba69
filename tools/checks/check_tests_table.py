#!/usr/bin/env python3
"""The table of tests/README.md has a row for each folder of tests/, and none for what is not there."""

import re

import source_tree

ROW = re.compile(r"^\| `([\w-]+)/` \|")


def check(root):
    page = root / "tests/README.md"
    rows = {}
    for number, line in enumerate(source_tree.text_of(page).splitlines(), 1):
        row = ROW.match(line)
        if row:
            rows[row.group(1)] = number
    folders = {path.relative_to(root / "tests").parts[0] for path in (root / "tests").rglob("*")
               if path.is_file() and "__pycache__" not in path.parts and path.parent != root / "tests"}
    for folder in sorted(folders - rows.keys()):
        yield page, 1, f"no row for tests/{folder}/"
    for folder in sorted(rows.keys() - folders):
        yield page, rows[folder], f"a row for tests/{folder}/, which is not there"


GOOD = {"tests/README.md": "| folder | holds |\n|---|---|\n| `unit/` | parts |\n", "tests/unit/core/a_test.cpp": "",
        "tests/__pycache__/a.pyc": ""}
BAD = [
    ({"tests/benchmarks/run.py": ""}, "no row for tests/benchmarks/"),
    ({"tests/README.md": "| `unit/` | parts |\n| `gone/` | nothing |\n"}, "a row for tests/gone/"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
