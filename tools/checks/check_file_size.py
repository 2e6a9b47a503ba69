#!/usr/bin/env python3
"""Files of at most 800 lines, functions of at most 80: what no longer fits is two things.

A macro and a function of a kernel's text (in a raw string, from a line that begins with KERNEL or FUNCTION to the next
that begins with a brace) count as functions do; so do the functions of scripts, told by the same layout.
"""

import ast
import re

import source_tree

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 80
MAX_CMAKE_LINES = 60
CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".cuh", ".inc"}
# By file, functions that are longer, each for its reason.
LONGER = {
    # Its variants share every loop: parts would take twenty arguments, half of them there in some variants only.
    "plugins/common/kernels/product.hpp": "KERNEL run(GLOBAL const float *restrict a,",
}
ATTRIBUTE = re.compile(r"\balignas\s*\([^()]*\)|\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.S)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$")
MEMBER_INITIALIZER = re.compile(r"\)[^()]*(?<!:):(?!:)(?:.*,)?\s*[\w:]+(?:<[^()]*>)?\s*$", re.S)
LAMBDA = re.compile(r"(?:^|[^\w\])\s])\s*\[[^\[\]]*\]\s*(?:\((?:[^()]|\([^()]*\))*\))?"
                    r"\s*(?:mutable|noexcept|constexpr|->\s*[\w:<>,&*\s]+|\s)*$")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[^\n]*\\\n)*", re.M)
PIECE = re.compile(r"[{};]|[^{};]+")
RAW_STRING = re.compile(r'R"(\w*)\((.*?)\)\1"', re.S)
KERNEL_HEAD = re.compile(r"(?:KERNEL|FUNCTION|__kernel|__global__|__device__|extern \"C\")\b")
SHELL_HEAD = re.compile(r"(?:function\s+)?\w+\s*\(\)")
JS_HEAD = re.compile(r"(?:(?:async )?function\b|(?:const|let|var|class)\b.*\{$|\(|\w.*=>\s*\{$)")


def kind_of_brace(head):
    """What an opening brace outside of any function starts, told by the text before it."""
    head = ATTRIBUTE.sub("", head).rstrip()
    if LAMBDA.search(head):
        return "lambda"
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
    for piece in PIECE.findall(code):
        if piece == "{" and depth:
            depth += 1
        elif piece == "{":
            kind = kind_of_brace(head)
            depth = int(kind in ("function", "lambda"))
            stack.append((kind, head_line, head))
            head = ""
        elif piece == "}" and depth > 1:
            depth -= 1
        elif piece == "}":
            kind, first, name = stack.pop() if stack else ("scope", line, "")
            depth, head = 0, ""
            if kind in ("function", "lambda"):
                yield " ".join(name.split()), first, line - first + 1
            if kind in ("lambda", "part of a head"):
                head, head_line = name + "{}", first
        elif piece == ";" and not depth:
            head = ""
        elif not depth:
            if not head.strip():
                head_line = line + piece.count("\n", 0, len(piece) - len(piece.lstrip()))
            head += piece
        line += piece.count("\n")


def macros(text):
    for found in MACRO.finditer(text):
        yield found.group(1), text.count("\n", 0, found.start()) + 1, found.group().count("\n") + 1


def laid_out(text, head, line=1):
    """Functions that begin with a line of this form and end with the next that begins with a brace."""
    first, name = 0, ""
    for number, words in enumerate(text.split("\n"), line):
        if not first and head.match(words):
            first, name = number, words
        if first and (words.startswith("}") or (first == number and words.endswith(("}", "};", "});")))):
            yield name, first, number - first + 1
            first = 0


def kernel_functions(text):
    for found in RAW_STRING.finditer(text):
        yield from laid_out(found.group(2), KERNEL_HEAD, text.count("\n", 0, found.start()) + 1)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def language_of(path, text):
    if path.suffix in CXX:
        return "c++"
    if path.suffix == ".js":
        return "js"
    if path.suffix == ".py" or (not path.suffix and re.match(r"#!.*\bpython", text)):
        return "python"
    if path.suffix == ".sh" or (not path.suffix and re.match(r"#!.*sh$", text, re.M)):
        return "shell"
    return ""


def functions_of(language, text):
    if language == "c++":
        yield from cxx_functions(text)
        yield from macros(text)
        yield from kernel_functions(text)
    elif language == "python":
        yield from python_functions(text)
    else:
        yield from laid_out(text, JS_HEAD if language == "js" else SHELL_HEAD)


def check(root):
    for path in source_tree.files(root, CXX | {".py", ".txt", ".js", ".sh", ""}):
        if path.suffix == ".txt" and path.name != "CMakeLists.txt":
            continue
        text = source_tree.text_of(path)
        lines = text.count("\n")
        if path.suffix == ".txt":
            if lines > MAX_CMAKE_LINES:
                yield path, 1, f"{lines} lines; a CMakeLists.txt has {MAX_CMAKE_LINES} at most"
            continue
        language = language_of(path, text)
        if not language:
            continue
        if lines > MAX_FILE_LINES:
            yield path, 1, f"{lines} lines; a file has {MAX_FILE_LINES} at most"
        longer = LONGER.get(path.relative_to(root).as_posix())
        for name, first, length in functions_of(language, text):
            if length > MAX_FUNCTION_LINES and not (longer and name.startswith(longer)):
                yield path, first, f"{length} lines, {MAX_FUNCTION_LINES} at most: {name[:60]}"


LONG = "  x();\n" * 81
GOOD = {
    "a.cpp": "namespace n {\n" + "int a;\n" * 100 + "}\nint f(int x) {\n" + "  x();\n" * 70 + "}\n"
             "struct alignas(64) S {\n" + "  int a;\n" * 100 + "};\n"
             "const T t[] = {\n" + "  {1},\n" * 100 + "};\n",
    "b.cpp": "#define ROWS(X) \\\n" + "  X(1) \\\n" * 70 + "\n" + "int a[3] {\n" + "  1,\n" * 90 + "};\n"
             'const char k[] = R"x(\n#define A 1\n' + "// x\n" * 90 + 'FUNCTION f() {\n#if A\n}\n)x";\n',
    "a.py": "def f():\n    pass\n" + "x = 1\n" * 90,
    "a.js": "const a = [\n" + "  1,\n" * 90 + "];\nfunction f() { return 1; }\n" + "f();\n" * 90 + "function g() {\n}\n",
    "run": "#!/usr/bin/env bash\n" + "ls\n" * 90 + "f() { ls; }\n" + "ls\n" * 90, "notes": "x\n" * 900,
}
BAD = [
    ({"b.cpp": "// x\n" * 801}, "a file has"),
    ({"b.cpp": "void g() {\n" + LONG + "}\n"}, "at most: void g()"),
    ({"b.cpp": "class C {\n  void g() const noexcept {\n" + LONG + "  }\n};\n"}, "at most: void g()"),
    ({"b.cpp": "C::C(int x) : x_(x) {\n" + LONG + "}\n"}, "at most: C::C"),
    ({"b.cpp": "C::C(int x) : x_{x}, y_{f(x)} {\n" + LONG + "}\n"}, "at most: C::C"),
    ({"b.cpp": "void g(S s = {}, T t = T{1}) {\n" + LONG + "}\n"}, "at most: void g"),
    ({"b.cpp": 'auto f = [](int x) -> int {\n const char* s = "}{"; // }\n' + LONG + "};\n"}, "at most: auto f"),
    ({"b.cpp": "auto g(int) -> std::string {\n" + LONG + "}\n"}, "at most: auto g"),
    ({"b.cpp": "const auto g = [&] {\n" + LONG + "};\n"}, "at most: const auto g"),
    ({"b.cpp": "const auto g = [a = f(1)](int x) mutable -> std::vector<int> {\n" + LONG + "};\n"}, "at most: const auto g"),
    ({"b.cpp": "const bool made = add(1, [](int x) {\n" + LONG + "}, T{2});\n"}, "at most: const bool made"),
    ({"b.cpp": "#define G(X) \\\n" + "  X(1); \\\n" * 81 + "\n"}, "at most: G"),
    ({"b.cpp": 'const char k[] = R"cl(\nKERNEL run(int a,\n           int b) {\n#if A\n  if (a) {\n#else\n  if (b) {\n#endif\n' + LONG +
               '  }\n}\n)cl";\n'}, "at most: KERNEL run"),
    ({"b.cu": "__global__ void g() {\n" + LONG + "}\n"}, "at most: __global__ void g"),
    ({"b.js": "function g(x) {\n" + LONG + "}\n"}, "at most: function g"),
    ({"b.js": "box.addEventListener('click', event => {\n" + LONG + "});\n"}, "at most: box.add"),
    ({"b.js": "let x;\n" * 801}, "a file has"),
    ({"b": "#!/usr/bin/env python3\ndef g():\n" + "    x()\n" * 81}, "at most: g"),
    ({"b": "#!/usr/bin/env bash\ng() {\n" + LONG + "}\n"}, "at most: g()"),
    ({"b": "#!/usr/bin/env bash\n" + "ls\n" * 801}, "a file has"),
    ({"b.py": "def g():\n" + "    x()\n" * 81}, "at most: g"),
    ({"x/CMakeLists.txt": "# x\n" * 61}, "CMakeLists.txt has"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
