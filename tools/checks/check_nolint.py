#!/usr/bin/env python3
"""A NOLINT names the checks that it silences, each of which .clang-tidy enables: others say nothing, and stay for ever."""

import fnmatch
import re

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".cuh", ".inc"}
FOLDERS = ("plugin_api", "core", "plugins", "custom_ops", "tools", "tests")
MARK = re.compile(r"\bNOLINT(?:NEXTLINE|BEGIN|END)?\b(?:\(([^)]*)\))?")
CHECKS = re.compile(r"^Checks: >-\n((?:  .*\n)+)", re.M)


def is_enabled(name, globs):
    """The last glob that fits decides."""
    fitting = [glob for glob in globs if fnmatch.fnmatchcase(name, glob.lstrip("-"))]
    return bool(fitting) and not fitting[-1].startswith("-")


def check(root):
    found = CHECKS.search(source_tree.text_of(root / ".clang-tidy"))
    globs = re.findall(r"[^\s,]+", found.group(1))
    for path in source_tree.files(root, CXX, *FOLDERS):
        for number, line in enumerate(source_tree.text_of(path).splitlines(), 1):
            for mark in MARK.finditer(line):
                if not mark.group(1):
                    yield path, number, f"{mark.group()} names no check"
                    continue
                for name in re.split(r"\s*,\s*", mark.group(1).strip()):
                    if not is_enabled(name, globs):
                        yield path, number, f"{name} is not enabled in .clang-tidy"


GOOD = {".clang-tidy": "---\nChecks: >-\n  -*,\n  bugprone-*,\n  -bugprone-easy,\n  modernize-use-using\nFormatStyle: file\n",
        "core/a.cpp": "f(x);  // NOLINT(bugprone-use-after-move): it is filled again\n// NOLINTNEXTLINE(modernize-use-using)\n"}
BAD = [
    ({"core/b.cpp": "f(x);  // NOLINT\n"}, "NOLINT names no check"),
    ({"core/b.cpp": "// NOLINTNEXTLINE(google-explicit-constructor)\n"}, "google-explicit-constructor is not enabled"),
    ({"core/b.cpp": "f(x);  // NOLINT(bugprone-use-after-move,bugprone-easy)\n"}, "bugprone-easy is not enabled"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
