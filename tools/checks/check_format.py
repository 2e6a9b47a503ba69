#!/usr/bin/env python3
"""C and C++ files are as clang-format 14 writes them (.clang-format). `--fix` formats them."""

import re
import shutil
import subprocess
import sys

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc"}
FOLDERS = ["plugin_api", "core", "plugins", "custom_ops", "tools", "tests"]
FINDING = re.compile(r"^(.*?):(\d+):\d+: error: ")
# A frozen copy of an older header is kept as it was.
LEFT_OUT = "frozen"


def run(arguments, paths):
    if not shutil.which("clang-format"):
        sys.exit("clang-format is not installed; tools/setup installs it")
    command = ["clang-format", "--style=file", *arguments]
    return subprocess.run(command + [str(path) for path in paths], capture_output=True, text=True)


def sources(root):
    return [path for path in source_tree.files(root, CXX, *FOLDERS)
            if not any(LEFT_OUT in part for part in path.relative_to(root).parts)]


def check(root):
    paths = sources(root)
    seen = set()
    if not paths:
        return
    for line in run(["--dry-run", "--Werror"], paths).stderr.splitlines():
        found = FINDING.match(line)
        if found and found.group(1) not in seen:  # the first place of each file is enough
            seen.add(found.group(1))
            path = next(path for path in paths if str(path) == found.group(1))
            yield path, int(found.group(2)), "not as clang-format has it; run tools/checks/check_format.py --fix"


STYLE = {".clang-format": source_tree.text_of(source_tree.ROOT / ".clang-format")}
GOOD = {**STYLE, "core/a.cpp": "int f(int* x) { return *x; }\n",
        "tests/frozen_v1/a.h": "int   f( );\n"}
BAD = [({"core/b.cpp": "int  f(int *x) {return *x;}\nint  g;\n"}, "not as clang-format has it")]
if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        run(["-i"], sources(source_tree.ROOT))
    else:
        source_tree.main(check, __doc__, GOOD, BAD)
