#!/usr/bin/env python3
"""Text that must not be committed: paths of one machine, hosts of package registries, unfinished work, lines
longer than 140 characters (documents and data may have them; code of C and C++ has 100, see .clang-format)."""

import re

import source_tree

SUFFIXES = {"", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".in", ".inc", ".cmake", ".css", ".html", ".js", ".json",
            ".map", ".md", ".py", ".sh", ".toml", ".txt", ".yml"}
MAX_LINE = 140
ANY_LENGTH = {".json", ".md"}
# A copy of an older header is kept as it was.
FROZEN = "frozen"
RULES = [
    # Written in pieces, so that this file does not find itself.
    (re.compile(r"(?<![\w.])/(?:home|root|Users|work" + r"|mnt|workspace)/\w+"),
     "a path of one machine; make it relative, or an argument"),
    (re.compile(r"(?:pypi\.(?:org|python\.org)|files\.pythonhosted\." + r"org|deb\.debian\." + r"org|"
                r"(?:^|[^-])--?(?:extra-)?index-url)"),
     "a package registry; the machine's configuration names those"),
    (re.compile(r"\b(?:TODO|FIX" + r"ME|XXX|HACK)\b(?!\(#\d+\)| ?#\d+)"),
     "unfinished work without the number of an issue, such as TODO(#12)"),
    (re.compile(r"-m(?:arch|tune)=" + r"native"), "the build must run on other machines than this one"),
    (re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)"), "left over from a merge"),
]


def check(root):
    here = source_tree.ROOT / "tools/checks/check_text.py"
    for path in source_tree.files(root, SUFFIXES):
        if path == here or path.name == "LICENSE":
            continue
        data = path.read_bytes()
        if b"\0" in data:
            continue  # a model or a picture
        is_long = path.suffix in ANY_LENGTH or any(FROZEN in part for part in path.relative_to(root).parts)
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if len(line) > MAX_LINE and not is_long:
                yield path, number, f"{len(line)} characters, {MAX_LINE} at most"
            for pattern, reason in RULES:
                found = pattern.search(line)
                if found:
                    yield path, number, f"{found.group().strip()!r}: {reason}"


GOOD = {"a.cpp": "// TODO(#12): later\nint a; // " + "http" + "s://onnx.ai/x\n",
        "setup": "#!/usr/bin/env bash\nls /usr/bin/python3 \"$root/work/x\"\n", "m.bin": "\0 TODO",
        "a.md": "word " * 90 + "\n", "a.json": "[" + "1, " * 90 + "1]\n", "x/frozen_v1/a.h": "// x" * 90 + "\n"}
BAD = [
    ({"b.cpp": "// TODO: later\n"}, "number of an issue"),
    ({"b.py": "open('/" + "home/somebody/x')\n"}, "path of one machine"),
    ({"b.cmake": "set(x /" + "work/main)\n"}, "path of one machine"),
    ({"b": "pip install --index" + "-url x\n"}, "package registry"),
    ({"CMakeLists.txt": "add_compile_options(-march=" + "native)\n"}, "other machines"),
    ({"b.js": "// " + "TODO: later\n"}, "number of an issue"),
    ({"b.html": "<a href='/" + "home/somebody/x'>\n"}, "path of one machine"),
    ({"b.css": "/* XX" + "X */\n"}, "number of an issue"),
    ({"b.hpp": "// " + "word " * 28 + "\n"}, "140 at most"),
    ({"b.py": "# " + "x" * 139 + "\n"}, "141 characters"),
    ({"b.md": "<<<<<<< HEAD\n"}, "merge"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
