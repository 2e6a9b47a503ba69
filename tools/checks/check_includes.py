#!/usr/bin/env python3
"""Who may include whom, from one table. Dependencies between folders go one way.

A row names a folder and what its files may include: folders of this tree, public headers and
libraries, by the prefix of what stands in the #include. The longest matching row decides. A file may
always include the standard library, the system's headers and those below its row's folder, also by their
path from there. A folder of core/ has a row of its own, and the table of core/ARCHITECTURE.md says the same.
"""

import re

import source_tree

# The folders of core/, and which of the others each may include.
CORE = {
    "base": [],
    "graph": ["base"],
    "onnx": ["base", "graph"],
    "passes": ["base", "graph"],
    "config": ["base", "graph", "passes"],
    "plugin_host": ["base", "graph", "onnx"],
    "plan": ["base", "graph", "onnx", "plugin_host"],
    "runtime": ["base", "graph", "onnx", "passes", "config", "plugin_host", "plan"],
}

PLUGIN_API = ["backplane/plugin_api.h", "backplane/plugin_api/", "backplane/plugin.hpp",
              "backplane/plugin/"]
HOST_API = ["backplane/backplane.h", "backplane/backplane.hpp", "backplane/host/"]
ONNX = ["onnx/", "google/protobuf/"]
TESTING = ["gtest/", "gmock/", "benchmark/"]
TERMINAL = ["CLI/", "nlohmann/"]
INTRINSICS = ["arm_neon.h", "cpuid.h", "emmintrin.h", "immintrin.h"]

TABLE = {
    "plugin_api": PLUGIN_API,
    "core/include": HOST_API + PLUGIN_API,
    # The host interface's own implementation, beside the folders.
    "core": HOST_API + PLUGIN_API + ["core/"],
    "core/base": ["spdlog/"],
    "core/graph": ["xxhash.h"],
    "core/onnx": ONNX,
    "core/plugin_host": PLUGIN_API + ["boost/dll", "boost/filesystem", "boost/system", "emmintrin.h"],
    "core/plan": PLUGIN_API + ["xxhash.h"],
    "core/runtime": PLUGIN_API + HOST_API + ["nlohmann/"],
    "core/config": ["toml++/"],
    "plugins/common": PLUGIN_API,
    "plugins": PLUGIN_API + ["plugins/common/"],
    "plugins/cpu": PLUGIN_API + ["plugins/common/", "hwy/"] + INTRINSICS,
    "plugins/opencl": PLUGIN_API + ["plugins/common/", "CL/"],
    "plugins/cuda": PLUGIN_API + ["plugins/common/", "cuda.h", "nvrtc.h", "cublasLt.h", "cudnn.h"],
    "custom_ops": PLUGIN_API,
    "custom_ops/gated_silu": PLUGIN_API + ["cuda.h", "nvrtc.h"],
    "tools": HOST_API + TERMINAL,
    "tools/gpu": HOST_API + TERMINAL + ["tools/gpu/", "cuda.h", "cublasLt.h"],
    "tools/detect": HOST_API + ["nlohmann/", "jpeglib.h", "tools/detect/"],
    # A conformance suite is the other side of the ABI.
    "tools/backplane/check": HOST_API + PLUGIN_API + TERMINAL + ["tools/backplane/"],
    "tests": HOST_API + PLUGIN_API + TESTING + TERMINAL + ["tests/"],
    "tests/unit": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "plugins/", "tests/"],
    "tests/opencl": PLUGIN_API + TESTING + ["tests/", "plugins/opencl/", "CL/", "clblast_c.h"],
    "tests/cuda": PLUGIN_API + TESTING + ["tests/", "plugins/cuda/", "plugins/common/", "custom_ops/", "cuda.h", "nvrtc.h",
                                          "CL/"],
    "tests/abi": PLUGIN_API + TESTING + ["tests/"],
    "tests/fixtures": PLUGIN_API + TESTING + ["tests/fixtures/"],
    "tests/control_flow": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/"],
    "tests/fixtures/frozen_host_v1": HOST_API,
    "tests/session": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/", "xxhash.h"],
    "tests/fuzz": HOST_API + ONNX + ["tests/"],
    "tests/faults": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/"],
}
for folder, others in CORE.items():
    TABLE[f"core/{folder}"] = TABLE.get(f"core/{folder}", []) + [f"core/{other}/" for other in others]

# Folders of which each subfolder stands for itself: siblings may not include each other.
SIBLINGS = ["plugins", "custom_ops", "tools"]

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# C++'s own, by their form; C's, POSIX's and Linux's, by name.
STANDARD = re.compile(r"^([a-z0-9_]+|(sys|linux)/[a-z0-9_]+\.h)$")
SYSTEM = {f"{name}.h" for name in (
    "assert ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg stdbool stddef stdint stdio "
    "stdlib string time dirent dlfcn elf fcntl features fnmatch glob link malloc poll pthread sched semaphore spawn "
    "strings ucontext unistd").split()}
GENERATED = {"op_table.hpp"}
MAP_ROW = re.compile(r"^\| \[`(\w+)`\].*\| *([\w, ]*?) *\|$")


def row_of(path):
    """(own folder, allowed prefixes) for a file, or (None, None) where no row speaks of it."""
    rows = [row for row in TABLE if path.startswith(row + "/")]
    if not rows:
        return None, None
    row = max(rows, key=len)
    own = row
    if row in SIBLINGS:
        inner = path[len(row) + 1 :].split("/")
        own = f"{row}/{inner[0]}" if len(inner) > 1 else row
    return own, TABLE[row]


def differences_of_map(root):
    """Where the table of core/ARCHITECTURE.md says otherwise than CORE."""
    path = root / "core/ARCHITECTURE.md"
    if not path.is_file():
        return
    for number, line in enumerate(source_tree.text_of(path).splitlines(), 1):
        row = MAP_ROW.match(line)
        if row and row.group(1) in CORE and row.group(2) != ", ".join(CORE[row.group(1)]):
            yield path, number, f"{row.group(1)} builds on {row.group(2)!r} here, and not in check_includes.py"


def exists_in_tree(root, path, target):
    places = [path.parent, root, root / "plugin_api/include", root / "core/include"]
    return any((place / target).is_file() for place in places)


def check(root):
    yield from differences_of_map(root)
    roots = ["plugin_api", "core", "plugins", "custom_ops", "tools", "tests"]
    for path in source_tree.files(root, CXX, *roots):
        name = path.relative_to(root).as_posix()
        own, allowed = row_of(name)
        if own == "core" and name.count("/") > 1:
            yield path, 1, f"{name.rsplit('/', 1)[0]}/ has no row in check_includes.py"
            continue
        lines = source_tree.text_of(path).splitlines()
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            quote, target = found.groups()
            if quote == "<" and (STANDARD.match(target) or target in SYSTEM):
                continue
            if ".." in target.split("/"):
                yield path, number, f'"{target}": write it from the root of the tree'
                continue
            if quote == '"' and any((place / target).is_file() for place in (path.parent, root / own)):
                continue
            if target.startswith(own + "/") or target in GENERATED:
                pass
            elif not any(target.startswith(prefix) for prefix in allowed):
                yield path, number, f"{own}/ may not include {target}; see the table in check_includes.py"
                continue
            if quote == '"' and target not in GENERATED and not exists_in_tree(root, path, target):
                yield path, number, f'"{target}" is not in the tree (libraries go in <>)'


GOOD = {
    "plugin_api/include/backplane/plugin.hpp": "#include <vector>\n",
    "core/base/error.hpp": "#include <string>\n#include <sys/mman.h>\n#include <unistd.h>\n#include <spdlog/spdlog.h>\n",
    "core/ARCHITECTURE.md": "| folder | what it knows | builds on |\n| [`base`](base) | errors | |\n"
                            "| [`graph`](graph) | nodes | base |\n",
    "core/c_api.cpp": '#include "core/graph/graph.hpp"\n',
    "core/graph/graph.hpp": '#include "core/base/error.hpp"\n',
    "core/onnx/importer.cpp": '#include "core/graph/graph.hpp"\n#include <onnx/checker.h>\n',
    "plugins/common/axes.hpp": "#include <cstdint>\n",
    "plugins/cpu/ops/add.cpp": '#include "backplane/plugin.hpp"\n#include "plugins/common/axes.hpp"\n'
                               '#include "op_table.hpp"\n',
    "plugins/cpu/device.cpp": "#include <cpuid.h>\n",
    "plugins/cuda/driver.cpp": "#include <cuda.h>\n",
    "plugins/gpu/gpu.hpp": "#include <vector>\n",
    "custom_ops/a/a.hpp": '#include "backplane/plugin.hpp"\n',
}
BAD = [
    ({"core/base/x.cpp": '#include "core/graph/graph.hpp"\n'}, "core/base/ may not include core/graph"),
    ({"core/base/x.cpp": "#include <cuda.h>\n"}, "core/base/ may not include cuda.h"),
    ({"core/base/x.cpp": "#include <xxhash.h>\n"}, "core/base/ may not include xxhash.h"),
    ({"core/base/x.cpp": "#include <immintrin.h>\n"}, "core/base/ may not include immintrin.h"),
    ({"plugins/cpu/x.cpp": "#include <cudnn.h>\n"}, "plugins/cpu/ may not include cudnn.h"),
    ({"plugins/gpu/x.cu": "#include <cuda.h>\n"}, "plugins/gpu/ may not include cuda.h"),
    ({"core/newfolder/x.cpp": '#include "core/base/error.hpp"\n'}, "core/newfolder/ has no row"),
    ({"core/plugin_host/x.cpp": '#include "core/passes/passes.hpp"\n'}, "core/plugin_host/ may not include core/passes"),
    ({"core/ARCHITECTURE.md": "| [`plan`](plan) | steps | base, graph |\n"}, "plan builds on 'base, graph' here"),
    ({"core/graph/x.cpp": "#include <onnx/checker.h>\n"}, "core/graph/ may not include onnx/"),
    ({"core/onnx/x.cpp": '#include "backplane/plugin.hpp"\n'}, "may not include backplane/plugin.hpp"),
    ({"plugins/cpu/x.cpp": '#include "core/base/error.hpp"\n'}, "plugins/cpu/ may not include core"),
    ({"plugins/gpu/x.cpp": '#include "plugins/cpu/x.hpp"\n'}, "plugins/gpu/ may not include plugins/cpu"),
    ({"plugins/cpu/x.cpp": '#include "plugins/gpu/gpu.hpp"\n'}, "may not include plugins/gpu"),
    ({"custom_ops/b/b.cpp": '#include "custom_ops/a/a.hpp"\n'}, "custom_ops/b/ may not include"),
    ({"custom_ops/b/b.cpp": '#include "../a/a.hpp"\n'}, "from the root of the tree"),
    ({"plugin_api/x.h": '#include "core/base/error.hpp"\n'}, "plugin_api/ may not include core"),
    ({"core/graph/x.cpp": '#include "core/base/missing.hpp"\n'}, "is not in the tree"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
