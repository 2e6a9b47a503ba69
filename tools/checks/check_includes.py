#!/usr/bin/env python3
"""Who may include whom, from one table. Dependencies between folders go one way.

A row names a folder and what its files may include: folders of this tree, public headers and
libraries, by the prefix of what stands in the #include. The longest matching row decides. A file may
always include the standard library and the headers below its row's folder, also by their path from there.
"""

import re

import source_tree

# The folders of core/, each of which may include those before it.
CORE_ORDER = ["base", "graph", "onnx", "passes", "config", "plugin_host", "plan", "runtime"]

PLUGIN_API = ["backplane/plugin_api.h", "backplane/plugin_api/", "backplane/plugin.hpp",
              "backplane/plugin/"]
HOST_API = ["backplane/backplane.h", "backplane/backplane.hpp", "backplane/host/"]
ONNX = ["onnx/", "google/protobuf/"]
TESTING = ["gtest/", "gmock/", "benchmark/"]
TERMINAL = ["CLI/", "nlohmann/"]

TABLE = {
    "plugin_api": PLUGIN_API,
    "core/include": HOST_API + PLUGIN_API,
    # The host interface's own implementation, beside the folders.
    "core": HOST_API + PLUGIN_API + ["core/"],
    "core/base": ["spdlog/"],
    "core/onnx": ONNX,
    "core/plugin_host": PLUGIN_API + ["boost/dll", "boost/filesystem", "boost/system"],
    "core/plan": PLUGIN_API + ["xxhash.h"],
    "core/runtime": PLUGIN_API + HOST_API + ["nlohmann/"],
    "core/config": ["toml++/"],
    "plugins/common": PLUGIN_API,
    "plugins": PLUGIN_API + ["plugins/common/"],
    "plugins/cpu": PLUGIN_API + ["plugins/common/", "hwy/"],
    "plugins/opencl": PLUGIN_API + ["plugins/common/", "CL/"],
    "plugins/cuda": PLUGIN_API + ["plugins/common/", "cuda.h", "nvrtc.h", "cublasLt.h", "cudnn.h"],
    "custom_ops": PLUGIN_API,
    "tools": HOST_API + TERMINAL,
    "tools/gpu": HOST_API + TERMINAL + ["tools/gpu/", "cuda.h", "cublasLt.h"],
    "tools/detect": HOST_API + ["nlohmann/", "jpeglib.h", "tools/detect/"],
    # A conformance suite is the other side of the ABI.
    "tools/backplane/check": HOST_API + PLUGIN_API + TERMINAL + ["tools/backplane/"],
    "tests": HOST_API + PLUGIN_API + TESTING + TERMINAL + ["tests/"],
    "tests/unit": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "plugins/", "tests/"],
    "tests/opencl": PLUGIN_API + TESTING + ["tests/", "plugins/opencl/", "CL/"],
    "tests/cuda": PLUGIN_API + TESTING + ["tests/", "plugins/cuda/", "plugins/common/", "custom_ops/", "cuda.h", "CL/"],
    "tests/abi": PLUGIN_API + TESTING + ["tests/"],
    "tests/fixtures": PLUGIN_API + TESTING + ["tests/fixtures/"],
    "tests/control_flow": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/"],
    "tests/fixtures/frozen_host_v1": HOST_API,
    "tests/session": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/"],
    "tests/faults": HOST_API + PLUGIN_API + TESTING + TERMINAL + ONNX + ["core/", "tests/"],
}
for place, folder in enumerate(CORE_ORDER):
    before = [f"core/{earlier}/" for earlier in CORE_ORDER[:place]]
    TABLE[f"core/{folder}"] = TABLE.get(f"core/{folder}", []) + before

# Folders of which each subfolder stands for itself: siblings may not include each other.
SIBLINGS = ["plugins", "custom_ops", "tools"]

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"^([a-z0-9_]+|[a-z0-9_]+\.h|(sys|linux|netinet|arpa)/[a-z0-9_]+\.h)$")
GENERATED = {"op_table.hpp"}


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


def exists_in_tree(root, path, target):
    places = [path.parent, root, root / "plugin_api/include", root / "core/include"]
    return any((place / target).is_file() for place in places)


def check(root):
    roots = ["plugin_api", "core", "plugins", "custom_ops", "tools", "tests"]
    for path in source_tree.files(root, CXX, *roots):
        name = path.relative_to(root).as_posix()
        own, allowed = row_of(name)
        lines = source_tree.text_of(path).splitlines()
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            quote, target = found.groups()
            if quote == "<" and STANDARD.match(target):
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
    "core/base/error.hpp": "#include <string>\n#include <spdlog/spdlog.h>\n",
    "core/graph/graph.hpp": '#include "core/base/error.hpp"\n',
    "core/onnx/importer.cpp": '#include "core/graph/graph.hpp"\n#include <onnx/checker.h>\n',
    "plugins/common/axes.hpp": "#include <cstdint>\n",
    "plugins/cpu/ops/add.cpp": '#include "backplane/plugin.hpp"\n#include "plugins/common/axes.hpp"\n'
                               '#include "op_table.hpp"\n',
    "plugins/gpu/gpu.hpp": "#include <vector>\n",
    "custom_ops/a/a.hpp": '#include "backplane/plugin.hpp"\n',
}
BAD = [
    ({"core/base/x.cpp": '#include "core/graph/graph.hpp"\n'}, "core/base/ may not include core/graph"),
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
