#!/usr/bin/env python3
"""Each row of core/SESSION.md that is done has tests whose names begin with it, and the test files that it names exist.

--self-test: the check finds a row without tests and a file that is gone."""

import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ.get("BACKPLANE_SOURCE_DIR", pathlib.Path(__file__).parents[3]))
TESTS = SOURCE / "tests"


def rows(page):
    """(row, test column) of the rows that are not in work."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.match(r"[GTLMCD]\d", cells[0]) and cells[1] != "in work":
            yield cells[0][:2], cells[3]


def test_names():
    """Of cases of GoogleTest, and of functions of scripts (d1_..., for row D1)."""
    for path in TESTS.rglob("*_test.cpp"):
        yield from re.findall(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)", path.read_text())
    for path in TESTS.rglob("*_test.py"):
        for name in re.findall(r"^def (\w+)\(", path.read_text(), re.M):
            yield name[0].upper() + name[1:]


def problems(page, names, files):
    for row, column in rows(page):
        if not any(re.match(row + r"(?!\d)", name) for name in names):
            yield f"{row} has no test whose name begins with it"
        for named in re.findall(r"`([\w/]+\.(?:cpp|py|c))`", column):
            if not any(file.endswith("/" + named) for file in files):
                yield f"{row} names {named}, which is not there"


def main(arguments):
    page = (SOURCE / "core/SESSION.md").read_text()
    names = set(test_names())
    files = ["/" + str(path.relative_to(TESTS)) for path in TESTS.rglob("*") if path.is_file()]
    if arguments == ["--self-test"]:
        without = {name for name in names if not name.startswith("L4")}
        finds = [
            "L4 has no test whose name begins with it" in problems(page, without, files),
            any("run_options_test.cpp" in line for line in problems(page, names, [f for f in files if "run_options" not in f])),
            len(list(rows(page))) >= 26,
        ]
        print(f"{sum(finds)} passed, {len(finds) - sum(finds)} failed, 0 skipped")
        return 0 if all(finds) else 1
    found = list(problems(page, names, files))
    for line in found:
        print("FAILED", line)
    print(f"{len(list(rows(page)))} passed, {len(found)} failed, 0 skipped")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
