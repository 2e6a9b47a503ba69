#!/usr/bin/env python3
"""Every public header of plugin_api/ compiles alone, in every language and compiler that it promises.

The C headers: C99, C11, C17, C++17, C++20 with -Wpadded besides the usual, so that no padding hides in
a struct. The SDK: C++17 and C++20; alone in C++17, which brings the fewest headers along, and in the other modes
all headers together, or with BACKPLANE_TEST_FULL alone in every mode. gcc and clang, each -Werror. That the flags
bite is proven on a small wrong header first.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(os.environ.get("BACKPLANE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
INCLUDE = SOURCE / "plugin_api/include"
STRICT = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
C_MODES = [("c", "c99"), ("c", "c11"), ("c", "c17"), ("c++", "c++17"), ("c++", "c++20")]
SDK_MODES = [("c++", "c++17"), ("c++", "c++20")]


IS_FULL = os.environ.get("BACKPLANE_TEST_FULL") is not None


def compile_text(compiler, language, standard, text, flags):
    command = [compiler, *STRICT, *flags, f"-std={standard}", "-x", language, "-I", str(INCLUDE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def jobs(compilers):
    """(compiler, language, standard, headers, flags)"""
    sdk = sorted(INCLUDE.rglob("*.hpp"))
    for compiler in compilers:
        for header in sorted(INCLUDE.rglob("*.h")):
            for language, standard in C_MODES:
                yield compiler, language, standard, [header], ["-Wpadded"]
        for language, standard in SDK_MODES:
            is_alone = IS_FULL or (compiler, standard) == (compilers[0], "c++17")
            for headers in [[header] for header in sdk] if is_alone else [sdk]:
                yield compiler, language, standard, headers, []


def use_of(structs):
    """Declarations for which a compiler must lay the structs out: clang warns of padding only then."""
    return "".join(f"extern char use_of_{name}[sizeof({name})];\n" for name in structs)


def check(job):
    compiler, language, standard, headers, flags = job
    names = [header.relative_to(INCLUDE).as_posix() for header in headers]
    text = "".join(f'#include "{name}"\n' for name in names) * 2  # a header may be included again
    for header in headers:
        text += use_of(re.findall(r"^typedef struct (\w+) \{", header.read_text(encoding="utf-8"), re.M))
    result = compile_text(compiler, language, standard, text, flags)
    return f"{compiler} {standard} {' '.join(names)}", result.returncode == 0, result.stderr


def flags_bite(compilers):
    padded = "typedef struct padded { char a; int b; } padded;\n" + use_of(["padded"])
    for compiler in compilers:
        for language, standard in C_MODES:
            if compile_text(compiler, language, standard, padded, ["-Wpadded"]).returncode == 0:
                yield f"{compiler} {standard} -Wpadded lets a padded struct pass"
        if compile_text(compiler, "c", "c99", "_Thread_local int a;\n", []).returncode == 0:
            yield f"{compiler} c99 lets C11 pass"


def main():
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    if not compilers:
        print("neither gcc nor clang is installed")
        return 77
    problems = list(flags_bite(compilers))
    for problem in problems:
        print(f"FAILED {problem}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(check, jobs(compilers)))
    for name, good, text in results:
        if not good:
            print(f"FAILED {name}\n{text}")
    failed = len(problems) + sum(not good for _, good, _ in results)
    skipped = 2 - len(compilers)
    print(f"{len(results) - failed + len(problems)} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
