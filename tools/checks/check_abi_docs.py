#!/usr/bin/env python3
"""Public headers are a manual.

C headers: the comment above every function and function pointer has the labels Ownership, Threads,
Errors and Since, with something said behind each. One comment may serve several declarations that follow it without a blank line; a comment
without labels between them adds to it.
Types of callbacks (typedefs) are described where they are passed. C++ headers: every class and enum of
a namespace says what it is in the comment above it. Both: a macro has a comment behind it, or above it and its neighbours.
What the plugins' first header (tests/fixtures/frozen_v1) has is since 1.0, and nothing else is.
"""

import re

import source_tree

LABELS = ["Ownership:", "Threads:", "Errors:", "Since:"]
PUBLIC = ["plugin_api/include", "core/include"]
POINTER = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\(")
FUNCTION = re.compile(r"^[\w\s*]*?\b(\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:;|\{)")
NOT_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "static_assert", "_Static_assert"}
CLASS = re.compile(r"^\s*(?:class|struct|enum(?:\s+class|\s+struct)?)\s+(\w+)(?!\w)(?!\s*;)(?!\s*<)")
SCALAR = re.compile(r"^typedef \w+ \w+;$")  # whose values the macros below it are
STRUCT = re.compile(r"^(?:typedef\s+)?struct\s+(\w+)\s*\{$")
SINCE = re.compile(r"\bSince:\s*(\d+\.\d+)")
FIRST = "1.0"
PLUGIN_API = "plugin_api/include/backplane"
FIRST_HEADERS = "tests/fixtures/frozen_v1/include"
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)")


def statements(text):
    """(first line, comment above, statement) of a C header, preprocessor lines left out."""
    comment, statement, first, blank = "", "", 0, False
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        bare = line.strip()
        if bare.startswith("#") and not statement:
            while bare.endswith("\\"):
                _, following = next(lines)
                bare = following.strip()
            continue
        if not bare:
            blank = True
            continue
        if not statement and bare.startswith(("/*", "//")):
            block = [bare]
            while bare.startswith("/*") and "*/" not in block[-1]:
                _, following = next(lines)
                block.append(following.strip())
            piece = "\n".join(block)
            goes_on = not blank and (bare.startswith("//") or not any(label in piece for label in LABELS))
            comment = (comment + "\n" if goes_on else "") + piece
            blank = False
            continue
        if blank and not statement:
            comment = ""
        blank = False
        first = first if statement else number
        statement += " " + re.sub(r"/\*.*?\*/|//.*", "", line)
        if re.search(r"[;{}]\s*$", statement):
            yield first, comment, statement.strip()
            statement = ""


def function_names(statement):
    """Of what a statement declares: a function, a pointer, or the pointers of a struct on one line."""
    if statement.startswith("typedef") and "{" not in statement:
        return []
    pointers = POINTER.findall(statement)
    if pointers and "{" in statement:
        return pointers
    function = FUNCTION.match(statement)
    return pointers[:1] or ([function.group(1)] if function and function.group(1) not in NOT_FUNCTIONS else [])


def is_said(label, comment):
    """Whether words follow the label, before the next one."""
    found = re.search(re.escape(label) + r"(.*?)(?:\b(?:" + "|".join(LABELS) + r")|$)", comment, re.S)
    return bool(found and re.search(r"\w", found.group(1)))


def check_c(path, text):
    for number, comment, statement in statements(text):
        missing = [label for label in LABELS if not is_said(label, comment)]
        for name in function_names(statement) if missing else []:
            yield path, number, f"{name}: its comment lacks {' '.join(missing)}"


def check_macros(path, text):
    lines = text.splitlines()
    for place, line in enumerate(lines):
        found = MACRO.match(line)
        is_taken_back = found and re.search(rf"^\s*#\s*undef\s+{found.group(1)}\b", text, re.M)
        if not found or is_taken_back or re.search(r"/[/*]", line) or (place and lines[place - 1].endswith("\\")):
            continue
        above = place - 1
        while above >= 0 and (lines[above].strip().startswith("#") or lines[above].endswith("\\")
                              or SCALAR.match(lines[above])
                              or (above and lines[above - 1].endswith("\\"))):
            above -= 1
        if above < 0 or not (lines[above].strip().endswith("*/") or lines[above].strip().startswith("//")):
            yield path, place + 1, f"{found.group(1)}: no comment says what it is"


def check_cpp(path, text):
    lines = text.splitlines()
    for place, line in enumerate(lines):
        found = CLASS.match(line)
        if not found or line.startswith(" "):  # inner ones belong to their class
            continue
        above = place - 1
        while above >= 0 and lines[above].strip().startswith("template"):
            above -= 1
        if above < 0 or not lines[above].strip().startswith(("//", "*", "/*")):
            yield path, place + 1, f"{found.group(1)}: no comment says what it is"


def declared(text):
    """(line, name with its struct, comment) of a C header's functions, pointers and macros."""
    of = ""
    for number, comment, statement in statements(text):
        struct = STRUCT.match(statement)
        of = struct.group(1) + "::" if struct else of
        for name in function_names(statement):
            yield number, of + name, comment
        of = "" if statement.startswith("}") else of
    lines = text.splitlines()
    for place, line in enumerate(lines):
        macro = MACRO.match(line)
        if macro:
            behind = re.search(r"/[/*].*", line)
            above = place
            while not behind and above and lines[above - 1].strip().startswith(("*", "/*", "//")):
                above -= 1
            yield place + 1, macro.group(1), behind.group() if behind else "\n".join(lines[above:place])


def check_since(root):
    """Where a label disagrees with the first header about what was there."""
    first = {name for path in source_tree.files(root, {".h"}, FIRST_HEADERS)
             for _, name, _ in declared(source_tree.text_of(path))}
    for path in source_tree.files(root, {".h"}, PLUGIN_API) if first else []:
        for number, name, comment in declared(source_tree.text_of(path)):
            since = SINCE.findall(comment)
            if since and (since[-1] == FIRST) != (name in first):
                has = "has" if name in first else "has not"
                yield path, number, f"{name}: since {since[-1]}, but the header of {FIRST} {has} it"


def check(root):
    yield from check_since(root)
    for path in source_tree.files(root, {".h", ".hpp"}, *PUBLIC):
        text = source_tree.text_of(path)
        yield from check_macros(path, text)
        yield from check_c(path, text) if path.suffix == ".h" else check_cpp(path, text)


FULL = "/* Does it.\n * Ownership: none. Threads: any. Errors: none. Since: 1.0 */\n"
H = "plugin_api/include/a.h"
GOOD = {
    H: "/* A manual. */\n#define F(x) \\\n  g(x);\n#include <a.h>\n\ntypedef void (*sink)(int x);\n\n"
       "/* A table. */\ntypedef struct t {\n  int size;\n\n" + FULL + "  void (*one)(int x);\n"
       "  int (*two)(int x,\n             int y);\n} t;\n\n" + FULL + "int a(void);\n/* More. */\nint b(void);\n\n" +
       FULL + "int query(const t* a, int (*f)(int));\n",
    "tests/fixtures/frozen_v1/include/a.h": "typedef struct t {\n  void (*one)(int x);\n} t;\nint a(void);\n",
    "plugin_api/include/backplane/a.h": FULL + "int a(void);\n\n/* Newer. Since: 1.1 */\n#define NEWER 1\n\n"
        "/* A table. */\ntypedef struct t {\n" + FULL + "  void (*one)(int x);\n\n" + FULL.replace("1.0", "1.2") +
        "  void (*two)(int x);\n} t;\n",
    "core/include/b.hpp": "/// A thing.\ntemplate <class T>\nclass Thing {\n};\nclass Later;\n"
                            "// A kind.\nenum class Kind { A };\n\n#define F(x) f(x)\nF(1);\n#undef F\n",
    "core/include/d.h": "// Codes.\ntypedef int code;\n#define OK 0\n",
    "core/include/c.h": "// Sizes.\n#define A 1\n#define B \\\n  2\n#ifdef A\n#define C 3\n#endif\n\n#define D 4 /* four */\n",
}
BAD = [
    ({"plugin_api/include/backplane/b.h": FULL + "int later(void);\n"}, "later: since 1.0, but the header of 1.0 has not it"),
    ({"plugin_api/include/backplane/b.h": FULL.replace("1.0", "1.1") + "int a(void);\n"}, "a: since 1.1, but"),
    ({"plugin_api/include/backplane/b.h": "/* Other. */\ntypedef struct other {\n" + FULL + "  void (*one)(int x);\n} other;\n"},
     "other::one: since 1.0, but"),
    ({"plugin_api/include/backplane/b.h": "/* One. Since: 1.0 */\n#define LATER 1\n"}, "LATER: since 1.0, but"),
    ({H: "/* Does it. Ownership: none. Threads: any. Since: 1.0 */\nvoid f(int x);\n"}, "f: its comment lacks Errors:"),
    ({H: FULL + "void f(int x);\n\nvoid g(void);\n"}, "g: its comment lacks Ownership:"),
    ({H: FULL + "void f(int x);\n/* Other. Threads: any. */\nvoid g(void);\n"}, "g: its comment lacks"),
    ({H: "typedef struct t {\n  /* x */\n  int (*two)(int x,\n    int y);\n} t;\n"}, "two: its comment lacks"),
    ({H: "/* Does it. Ownership: Threads: any. Errors: none. Since: 1.0 */\nvoid f(int x);\n"}, "lacks Ownership:"),
    ({H: "/* Does it. Ownership: none. Threads: any. Errors:\n * Since: */\nvoid f(int x);\n"}, "lacks Errors: Since:"),
    ({H: "typedef struct t { int size; int (*two)(int x); } t;\n"}, "two: its comment lacks"),
    ({H: "/* Before. */\n\n#define A 1\n"}, "A: no comment"),
    ({H: "#define A(x) \\\n  f(x)\n"}, "A: no comment"),
    ({"core/include/b.hpp": "enum class Kind : int {\n};\n"}, "Kind: no comment"),
    ({"core/include/b.hpp": "struct Pair { int a, b; };\n"}, "Pair: no comment"),
    ({"core/include/b.hpp": "class Thing {\n};\n"}, "Thing: no comment"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
