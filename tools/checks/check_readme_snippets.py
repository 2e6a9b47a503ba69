#!/usr/bin/env python3
"""Code shown in a document is code that is compiled, or run.

A fenced block after `<!-- from: path#region -->` equals the lines of that file between a line that
holds `[region]` and one that holds `[/region]`, with common indentation removed. A block of C, C++ or Python without
such a line is an error. `--fix` rewrites the blocks from the files.
"""

import re
import sys
import textwrap

import source_tree

MARK = re.compile(r"^\s*<!-- from: (\S+)#(\S+) -->\s*$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([^\s`]*)[^`]*$")
COMPILED = {"c", "h", "cc", "cpp", "c++", "cxx", "hpp", "cuda", "py", "python", "python3"}


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
    """(line of the fence, line after the block, language, indentation, mark or None) of each fenced block."""
    place = 0
    while place < len(lines):
        fence = FENCE.match(lines[place])
        if fence:
            indentation, marks, language = fence.groups()
            closing = re.compile(rf"\s*{re.escape(marks[0])}{{{len(marks)},}}\s*$")
            end = place + 1
            while end < len(lines) and not closing.match(lines[end]):
                end += 1
            mark = MARK.match(lines[place - 1]) if place else None
            yield place, end, language.lower(), indentation, mark
            place = end
        place += 1


def check(root):
    for path in source_tree.files(root, {".md"}):
        lines = source_tree.text_of(path).splitlines()
        for begin, end, language, indentation, mark in blocks(lines):
            if mark is None:
                if language in COMPILED:
                    yield path, begin + 1, f"{language} without a line <!-- from: path#region --> above it"
                continue
            wanted, problem = region_of(root, *mark.groups())
            if problem:
                yield path, begin, problem
            elif lines[begin + 1 : end] != textwrap.indent(wanted, indentation).split("\n"):
                yield path, begin + 1, f"differs from {mark.group(1)}#{mark.group(2)}; run with --fix"


def fix(root):
    for path in source_tree.files(root, {".md"}):
        lines = source_tree.text_of(path).splitlines()
        for begin, end, _, indentation, mark in reversed(list(blocks(lines))):
            wanted, problem = region_of(root, *mark.groups()) if mark else (None, "no mark")
            if not problem:
                lines[begin + 1 : end] = textwrap.indent(wanted, indentation).split("\n")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


CODE = "int main() {\n  // [go]\n  f();\n    g();\n  // [/go]\n}\n"
GOOD = {"a.cpp": CODE, "a.md": "Text\n<!-- from: a.cpp#go -->\n```cpp\nf();\n  g();\n```\n```sh\nls\n```\n"
        "1. A list\n\n   <!-- from: a.cpp#go -->\n   ~~~~cpp\n   f();\n     g();\n   ~~~~\n~~~\n```cpp\n~~~\nInline ```c```.\n"}
BAD = [
    ({"b.md": "<!-- from: a.cpp#go -->\n```cpp\nf();\n```\n"}, "differs from a.cpp#go"),
    ({"b.md": "<!-- from: a.cpp#stop -->\n```cpp\nf();\n```\n"}, "needs one [stop]"),
    ({"b.md": "<!-- from: c.cpp#go -->\n```cpp\nf();\n```\n"}, "c.cpp is not there"),
    ({"b.md": "```cpp\nf();\n```\n"}, "cpp without a line"),
    ({"b.md": "~~~ C++\nf();\n~~~\n"}, "c++ without a line"),
    ({"b.md": "- so:\n\n  ```c\n  f();\n  ```\n"}, "c without a line"),
    ({"b.md": "```python\nf()\n```\n"}, "python without a line"),
    ({"b.md": "1. <!-- x -->\n   <!-- from: a.cpp#go -->\n   ```cpp\n   f();\n   ```\n"}, "differs from a.cpp#go"),
]
if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        fix(source_tree.ROOT)
    else:
        source_tree.main(check, __doc__, GOOD, BAD)
