#!/usr/bin/env python3
"""Files of at most 800 lines, functions of at most 80: what no longer fits is two things."""

import ast
import re

import source_tree

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 80
MAX_CMAKE_LINES = 60
CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".inc"}
ATTRIBUTE = re.compile(r"\balignas\s*\([^()]*\)|\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.S)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$")
MEMBER_INITIALIZER = re.compile(r"\)[^()]*:(?!:)(?:.*,)?\s*[\w:]+(?:<[^()]*>)?\s*$", re.S)


def kind_of_brace(head):
    """What an opening brace outside of any function starts, told by the text before it."""
    head = ATTRIBUTE.sub("", head).rstrip()
    if head.count("(") > head.count(")") or MEMBER_INITIALIZER.search(head):
        return "part of a head"  # f(Shape s = {}) or C::C() : x_{1}: the head goes on after it
    if "(" not in head or head.endswith(("=", ",")) or SCOPE.search(head):
        return "scope"
    return "function"


def cxx_functions(text):
    """(name, first line, lines) of every outermost function or lambda body."""
    code = source_tree.without_comments_and_strings(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), code,
                  flags=re.M)
    line, head, head_line, stack, depth = 1, "", 1, [], 0  # depth: braces inside a function
    for char in code:
        line += char == "\n"
        if char == "{" and depth:
            depth += 1
        elif char == "{":
            kind = kind_of_brace(head)
            depth = int(kind == "function")
            stack.append((kind, head_line, head))
            head = ""
        elif char == "}" and depth > 1:
            depth -= 1
        elif char == "}":
            kind, first, name = stack.pop() if stack else ("scope", line, "")
            depth, head = 0, ""
            if kind == "function":
                yield " ".join(name.split()), first, line - first + 1
            elif kind == "part of a head":
                head, head_line = name + "{}", first
        elif char == ";" and not depth:
            head = ""
        elif not depth:
            head_line = head_line if head.strip() else line
            head += char


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def check(root):
    for path in source_tree.files(root, CXX | {".py", ".txt"}):
        if path.suffix == ".txt" and path.name != "CMakeLists.txt":
            continue
        text = source_tree.text_of(path)
        lines = text.count("\n")
        if path.suffix == ".txt":
            if lines > MAX_CMAKE_LINES:
                yield path, 1, f"{lines} lines; a CMakeLists.txt has {MAX_CMAKE_LINES} at most"
            continue
        if lines > MAX_FILE_LINES:
            yield path, 1, f"{lines} lines; a file has {MAX_FILE_LINES} at most"
        functions = python_functions(text) if path.suffix == ".py" else cxx_functions(text)
        for name, first, length in functions:
            if length > MAX_FUNCTION_LINES:
                yield path, first, f"{length} lines, {MAX_FUNCTION_LINES} at most: {name[:60]}"


LONG = "  x();\n" * 81
GOOD = {
    "a.cpp": "namespace n {\n" + "int a;\n" * 100 + "}\nint f(int x) {\n" + "  x();\n" * 70 + "}\n"
             "struct alignas(64) S {\n" + "  int a;\n" * 100 + "};\n"
             "const T t[] = {\n" + "  {1},\n" * 100 + "};\n",
    "a.py": "def f():\n    pass\n" + "x = 1\n" * 90,
}
BAD = [
    ({"b.cpp": "// x\n" * 801}, "a file has"),
    ({"b.cpp": "void g() {\n" + LONG + "}\n"}, "at most: void g()"),
    ({"b.cpp": "class C {\n  void g() const noexcept {\n" + LONG + "  }\n};\n"}, "at most: void g()"),
    ({"b.cpp": "C::C(int x) : x_(x) {\n" + LONG + "}\n"}, "at most: C::C"),
    ({"b.cpp": "C::C(int x) : x_{x}, y_{f(x)} {\n" + LONG + "}\n"}, "at most: C::C"),
    ({"b.cpp": "void g(S s = {}, T t = T{1}) {\n" + LONG + "}\n"}, "at most: void g"),
    ({"b.cpp": 'auto f = [](int x) -> int {\n const char* s = "}{"; // }\n' + LONG + "};\n"}, "at most: auto f"),
    ({"b.py": "def g():\n" + "    x()\n" * 81}, "at most: g"),
    ({"x/CMakeLists.txt": "# x\n" * 61}, "CMakeLists.txt has"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
