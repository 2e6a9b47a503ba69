#!/usr/bin/env python3
"""What is loaded in a program makes and reads text without its locale.

A program may have set a locale with decimal commas and grouped digits, for C++ (std::locale::global) or C (setlocale). So
numbers become text, and text numbers, in core::text and core::TextInput, in sdk::message, or by <charconv>.
"""

import re

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".inc"}
FOLDERS = ("core", "plugins", "plugin_api", "custom_ops")
# Where the streams are given C's locale.
PLACES = {"core/base/text_stream.hpp", "plugin_api/include/backplane/plugin/error.hpp"}

STREAMS = re.compile(r"\bstd::(?:basic_)?[io]?stringstream\b|#include <(?:sstream|regex)>")
FUNCTIONS = re.compile(r"\b(?:atof|sto(?:f|d|ld)|strto(?:f|d|ld)|v?sn?printf)\b\s*\(")


def check(root):
    for path in source_tree.files(root, CXX, *FOLDERS):
        is_place = path.relative_to(root).as_posix() in PLACES
        code = source_tree.without_comments_and_strings(source_tree.text_of(path))
        for number, line in enumerate(code.splitlines(), 1):
            found = FUNCTIONS.search(line) or (None if is_place else STREAMS.search(line))
            if found:
                yield path, number, f"the program's locale decides what {found.group().strip('( ')!r} does"


GOOD = {"core/base/text_stream.hpp": "#include <sstream>\nclass TextOutput : public std::ostringstream {};\n",
        "core/plan/a.cpp": '// std::ostringstream\nTextOutput out; out << "atof(x)"; std::from_chars(a, b, c);\n',
        "tools/a.cpp": "std::ostringstream out;\n"}
BAD = [
    ({"core/plan/b.cpp": "std::ostringstream out;\n"}, "std::ostringstream"),
    ({"plugins/cpu/b.cpp": "std::istringstream in(text);\n"}, "std::istringstream"),
    ({"custom_ops/x/b.cpp": "#include <sstream>\n"}, "sstream"),
    ({"plugin_api/include/b.hpp": "double x = std::strtod(text, nullptr);\n"}, "strtod"),
    ({"core/plan/b.cpp": 'std::snprintf(words, sizeof(words), "%.1f", x);\n'}, "snprintf"),
    ({"core/base/text_stream.hpp": "double x = atof(text);\n"}, "atof"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
