#!/usr/bin/env python3
"""What is loaded in a program makes and reads text without its locale.

A program may have set a locale with decimal commas and grouped digits, for C++ (std::locale::global) or C (setlocale). So
numbers become text, and text numbers, in core::text and core::TextInput, in sdk::message, or by <charconv>. What asks no
locale is left alone: std::to_string of integers, printf of text and integers, files read and written as bytes or lines.
"""

import re

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".inc"}
FOLDERS = ("core", "plugins", "plugin_api", "custom_ops")
# Where the streams are given C's locale.
PLACES = {"core/base/text_stream.hpp", "plugin_api/include/backplane/plugin/error.hpp"}

STREAMS = re.compile(r"\bstd::(?:basic_)?[io]?stringstream\b|#include <(?:sstream|regex)>")
FUNCTIONS = re.compile(r"\b(?:atof|sto(?:f|d|ld)|strto(?:f|d|ld)|v?sn?printf)\b\s*\(")
FORMATTED = re.compile(r"\b(?:v?[fd]?printf|v?f?s?scanf)\b\s*\([^;]*?%[-+ #0-9.*']*(?:'|[lL]?[aefgAEFG])[^;]*")
FILES = re.compile(r"\bstd::(?:basic_)?[io]?fstream\s+(\w+)")
REALS = re.compile(r"\b(?:double|float)\b[\s&*]*(\w+)")
TO_STRING = re.compile(r"\bstd::to_string\s*\(((?:[^()]|\([^()]*\))*)\)")
IS_REAL = re.compile(r"\b(?:double|float)\b|\b\d+\.\d*|\.\d")


def formatted_files(code):
    """Where << or >> is used on a file's stream that was not given C's locale."""
    for name in {found.group(1) for found in FILES.finditer(code)}:
        if not re.search(rf"\b{name}\.imbue\(std::locale::classic\(\)\)", code):
            yield from re.finditer(rf"(?<![\w.>]){name}\s*(?:<<|>>)", code)


def reals_as_text(code):
    """std::to_string of what is told to be a float or double, by its own text or a declaration of the file."""
    reals = {found.group(1) for found in REALS.finditer(code)}
    for found in TO_STRING.finditer(code):
        names = re.findall(r"\w+", found.group(1))
        if IS_REAL.search(found.group(1)) or (len(names) == 1 and names[0] in reals):
            yield found


def check(root):
    for path in source_tree.files(root, CXX, *FOLDERS):
        is_place = path.relative_to(root).as_posix() in PLACES
        text = source_tree.text_of(path)
        code = source_tree.without_comments_and_strings(text)
        found = [*FUNCTIONS.finditer(code), *formatted_files(code), *reals_as_text(code)]
        found += [] if is_place else STREAMS.finditer(code)
        places = [(code.count("\n", 0, one.start()), one.group()) for one in found]
        with_strings = source_tree.without_comments_and_strings(text, keep_strings=True)
        places += [(with_strings.count("\n", 0, one.start()), one.group().split("(")[0])
                   for one in FORMATTED.finditer(with_strings)]
        for line, words in sorted(places):
            yield path, line + 1, f"the program's locale decides what {words.strip('( ')!r} does"


GOOD = {"core/base/text_stream.hpp": "#include <sstream>\nclass TextOutput : public std::ostringstream {};\n",
        "core/plan/a.cpp": '// std::ostringstream\nTextOutput out; out << "atof(x)"; std::from_chars(a, b, c);\n'
                          'double x; a = std::to_string(int_of(x)); std::fprintf(stderr, "%s %d 5%%\\n", a, 1);\n'
                          'std::ifstream file(path); file.read(a, 1); out << file.size();\n',
        "core/plan/c.cpp": "std::ifstream file(a);\nfile.imbue(std::locale::classic());\nfile >> x;\n",
        "tools/a.cpp": "std::ostringstream out;\n"}
BAD = [
    ({"core/plan/b.cpp": "std::ostringstream out;\n"}, "std::ostringstream"),
    ({"plugins/cpu/b.cpp": "std::istringstream in(text);\n"}, "std::istringstream"),
    ({"custom_ops/x/b.cpp": "#include <sstream>\n"}, "sstream"),
    ({"plugin_api/include/b.hpp": "double x = std::strtod(text, nullptr);\n"}, "strtod"),
    ({"core/plan/b.cpp": 'std::snprintf(words, sizeof(words), "%.1f", x);\n'}, "snprintf"),
    ({"core/plan/b.cpp": 'std::fprintf(file, "%d\\t%.3f\\n", i, x);\n'}, "fprintf"),
    ({"core/plan/b.cpp": 'std::sscanf(text, "%lf", &x);\n'}, "sscanf"),
    ({"core/plan/b.cpp": "std::ofstream out(path);\nout << 0.5;\n"}, "'out <<'"),
    ({"core/plan/b.cpp": "for (std::ifstream in(path); in >> x;) {}\n"}, "'in >>'"),
    ({"core/plan/b.cpp": "std::string f(double x) { return std::to_string(x); }\n"}, "to_string(x)"),
    ({"core/plan/b.cpp": "auto a = std::to_string(static_cast<float>(n));\n"}, "to_string(static_cast<float>(n))"),
    ({"core/base/text_stream.hpp": "double x = atof(text);\n"}, "atof"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
