#!/usr/bin/env python3
"""Code shown in a document is code that is compiled.

A fenced block after `<!-- from: path#region -->` equals the lines of that file between a line that
holds `[region]` and one that holds `[/region]`, with common indentation removed. A C++ block without
such a line is an error. `--fix` rewrites the blocks from the files.
"""

import re
import sys
import textwrap

import source_tree

MARK = re.compile(r"^<!-- from: (\S+)#(\S+) -->\s*$")
COMPILED = {"cpp", "c", "c++", "hpp"}


def region_of(root, name, region):
    """The region's text, or an explanation why there is none."""
    path = root / name
    if not path.is_file():
        return None, f"{name} is not there"
    lines = source_tree.text_of(path).splitlines()
    begins = [n for n, line in enumerate(lines) if f"[{region}]" in line]
    ends = [n for n, line in enumerate(lines) if f"[/{region}]" in line]
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        return None, f"{name} needs one [{region}] and, below it, one [/{region}]"
    return textwrap.dedent("\n".join(lines[begins[0] + 1 : ends[0]])).strip("\n"), None


def blocks(lines):
    """(line of the fence, line after the block, language, mark or None) of each fenced block."""
    place = 0
    while place < len(lines):
        if lines[place].startswith("```"):
            end = place + 1
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            mark = MARK.match(lines[place - 1]) if place else None
            yield place, end, lines[place][3:].strip().lower(), mark
            place = end
        place += 1


def check(root):
    for path in source_tree.files(root, {".md"}):
        lines = source_tree.text_of(path).splitlines()
        for begin, end, language, mark in blocks(lines):
            if mark is None:
                if language in COMPILED:
                    yield path, begin + 1, "C++ without a line <!-- from: path#region --> above it"
                continue
            wanted, problem = region_of(root, *mark.groups())
            if problem:
                yield path, begin, problem
            elif "\n".join(lines[begin + 1 : end]) != wanted:
                yield path, begin + 1, f"differs from {mark.group(1)}#{mark.group(2)}; run with --fix"


def fix(root):
    for path in source_tree.files(root, {".md"}):
        lines = source_tree.text_of(path).splitlines()
        for begin, end, _, mark in reversed(list(blocks(lines))):
            wanted, problem = region_of(root, *mark.groups()) if mark else (None, "no mark")
            if not problem:
                lines[begin + 1 : end] = wanted.split("\n")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


CODE = "int main() {\n  // [go]\n  f();\n    g();\n  // [/go]\n}\n"
GOOD = {"a.cpp": CODE, "a.md": "Text\n<!-- from: a.cpp#go -->\n```cpp\nf();\n  g();\n```\n```sh\nls\n```\n"}
BAD = [
    ({"b.md": "<!-- from: a.cpp#go -->\n```cpp\nf();\n```\n"}, "differs from a.cpp#go"),
    ({"b.md": "<!-- from: a.cpp#stop -->\n```cpp\nf();\n```\n"}, "needs one [stop]"),
    ({"b.md": "<!-- from: c.cpp#go -->\n```cpp\nf();\n```\n"}, "c.cpp is not there"),
    ({"b.md": "```cpp\nf();\n```\n"}, "C++ without a line"),
]
if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        fix(source_tree.ROOT)
    else:
        source_tree.main(check, __doc__, GOOD, BAD)
