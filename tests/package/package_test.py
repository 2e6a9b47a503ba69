#!/usr/bin/env python3
"""What authors outside of this tree do, as plugin_api/README.md tells them.

Installs the build, moves the installed tree elsewhere, copies its project of examples, renames them, builds with
find_package(backplane), loads both with the moved program and runs a model on them. The README's first program is built and run,
too.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

SOURCE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])


def run(*command, **options):
    made = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if made.returncode != 0:
        raise SystemExit(f"FAILED ({made.returncode}): {' '.join(map(str, command))}\n{made.stdout}{made.stderr}")
    return made.stdout


def install(folder):
    """The installed tree, moved away from where it was installed to."""
    run("cmake", "--install", BUILD, "--prefix", folder / "first place")
    shutil.move(folder / "first place", folder / "moved tree")
    return folder / "moved tree"


def renamed(source, changes):
    text = source.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, f"{source.name} has no {old}"
        text = text.replace(old, new)
    return text


def build_project(folder, prefix):
    """The project with its two sources; its build folder."""
    project = folder / "project"
    shutil.copytree(prefix / "share/doc/backplane/examples", project)
    (project / "my_provider.cpp").write_text(renamed(
        project / "my_provider.cpp",
        [('"null"', '"mine"'), ('"null:', '"mine:'), ("null_provider", "my_provider")]), encoding="utf-8")
    (project / "my_ops.cpp").write_text(renamed(
        project / "my_ops.cpp",
        [("backplane.examples", "my.domain"), ('BP_PLUGIN("windowed_mean"', 'BP_PLUGIN("my_ops"')]), encoding="utf-8")
    build = folder / "project build"
    run("cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", build, "--parallel", "2")
    return build


LINK = re.compile(r"\[([^][\n]+)\]\(([^() #\n]*)(#[^() \n]*)?\)")


def parts(page):
    """A page without its blocks of code, and these."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"```.*?```", "", text, flags=re.S), re.findall(r"```.*?```", text, re.S)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", parts(page)[0], re.M)
    return {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def check_manual(prefix):
    """The pages say what those of this tree say, and every link in them leads somewhere in the installed tree."""
    manual, links = prefix / "share/doc/backplane", 0
    for page in sorted(manual.rglob("*.md")):
        source = SOURCE / page.relative_to(manual)
        (text, blocks), (original, its_blocks) = parts(page), parts(source)
        assert blocks == its_blocks and LINK.sub(r"\1", text) == LINK.sub(r"\1", original), page
        for words, target, anchor in LINK.findall(text):
            if re.match("[a-z]+:", target):
                continue
            where = (page.parent / target).resolve() if target else page
            assert where.is_file() and where.is_relative_to(prefix.resolve()), f"{page}: [{words}]({target}) leads nowhere"
            assert not anchor or anchor in anchors(where), f"{page}: there is no {anchor} in {target}"
            links += 1
    for page in ("README.md", "core/SESSION.md", "core/python/README.md", "plugin_api/README.md", "plugins/opencl/README.md"):
        assert (manual / page).is_file(), page
    assert links > 10, links
    assert (manual / "LICENSE").is_file()
    text = (manual / "plugin_api/README.md").read_text(encoding="utf-8")
    named = re.findall(r"`DIR/([^`]*)`", text)
    assert named, "the page names nothing of the installed tree"
    for path in named:
        assert (prefix / path).exists(), f"plugin_api/README.md names {path}, which is not installed"
    asked = re.search(r"--providers (\w+)", text).group(1)
    assert f'"{asked}"' in (manual / "examples/my_provider.cpp").read_text(encoding="utf-8"), asked


# Two sessions on two libraries; the first one ends, with all that holds its library.
TWO_LIBRARIES = """
#include <backplane/backplane.hpp>
#include <iostream>
#include <memory>
using namespace backplane;
int main() {
  const auto options = [](const char* library) {
    Options made;
    made.set("providers", "cpu");
    made.RegisterCustomOpsLibrary(library);
    return made;
  };
  auto first = std::make_unique<Environment>();
  const Environment second;
  auto one = std::make_unique<Session>(*first, "one.onnx", options("./one.so"));
  const Session two(second, "two.onnx", options("./two.so"));
  one.reset();
  first.reset();
  const Value nine = Value::tensor<float>({9}), single = Value::tensor<float>({1});
  std::cout << two.run({{"x", nine}}).size() << std::endl;
  try {
    two.run({{"x", single}});
  } catch (const Error& error) {
    std::cout << error.what() << std::endl;
  }
}
"""


def check_made_by_hand(folder, prefix):
    """Libraries whose symbols are all visible, as a plain `c++ -shared` makes them, are apart: one ends, the other goes on."""
    here = folder / "by hand"
    here.mkdir()
    for name in ("one", "two"):
        (here / f"{name}.cpp").write_text(renamed(
            prefix / "share/doc/backplane/examples/my_ops.cpp",
            [("backplane.examples", f"{name}.domain"), ('BP_PLUGIN("windowed_mean"', f'BP_PLUGIN("{name}"')]), encoding="utf-8")
        run("c++", "-std=c++17", "-shared", "-fPIC", "-I", prefix / "include", f"{name}.cpp", "-o", f"{name}.so", cwd=here)
        node = helper.make_node("WindowedMean", ["x"], ["y"], domain=f"{name}.domain", window=2)
        graph = helper.make_graph([node], name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])])
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid(f"{name}.domain", 1)]), here / f"{name}.onnx")
    (here / "main.cpp").write_text(TWO_LIBRARIES, encoding="utf-8")
    library = one_file(prefix, "libbackplane.so").parent
    run("c++", "-std=c++20", "-I", prefix / "include", "main.cpp", "-o", "main", "-L", library, "-lbackplane",
        f"-Wl,-rpath,{library}", cwd=here)
    lines = run("./main", cwd=here).splitlines()
    assert len(lines) == 2 and lines[0] == "1" and "does not fit 1 elements" in lines[1], lines


def check_c_provider(folder, build, program):
    """The provider in C passes the suite for providers, computes what it says that it does, and refuses the rest with its reason."""
    plugin = one_file(build, "c_provider.so")
    report = json.loads(run(program, "check", plugin, "--json"))
    assert report["failed"] == 0 and report["passed"] > 0, report
    nodes = [helper.make_node("LeakyRelu", ["x"], ["a"], "taken", alpha=0.5),
             helper.make_node("LeakyRelu", ["a"], ["y"], "refused", alpha=-1.0)]
    graph = helper.make_graph(nodes, "c", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), folder / "c.onnx")
    common = ["--plugin-path", plugin.parent, "--providers", "plain_c,cpu", "--set", "provider.plain_c.grain=2",
              "--set", "optimization=none", "--json"]
    run(program, "run", folder / "c.onnx", "--input", f"x={folder}/x.npy", "--output-dir", folder / "c out", *common)
    assert np.load(folder / "c out/y.npy").tolist() == [2, 2, 4, 8]
    plan = {node["name"]: node for node in json.loads(run(program, "inspect", folder / "c.onnx", *common))["nodes"]}
    assert plan["taken"]["kernel"].startswith("plain_c:leaky_relu") and plan["refused"]["provider"] == "cpu", plan
    assert "slopes that are not negative" in plan["refused"]["reasons"][0]["text"], plan


def make_model(file):
    """WindowedMean of the operator library, then Relu, which the provider has."""
    nodes = [helper.make_node("WindowedMean", ["x"], ["means"], "means", domain="my.domain", window=2),
             helper.make_node("Relu", ["means"], ["y"], "relu")]
    graph = helper.make_graph(nodes, "package", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("my.domain", 1)]), file)


def check_hello(folder, build, program):
    """The README's first program prints what the installed `backplane run` computes."""
    shutil.copy(SOURCE / "tests/data/digits/digits.onnx", folder)
    printed = [float(line) for line in run(build / "hello", cwd=folder).split()]
    image = np.zeros((1, 1, 8, 8), np.float32)
    image[0, 0, 3, 4] = 1
    np.save(folder / "image.npy", image)
    run(program, "run", folder / "digits.onnx", "--input", f"image={folder}/image.npy", "--output-dir", folder / "digits")
    computed = np.load(one_file(folder / "digits", "*.npy")).ravel()
    assert len(printed) == 10 and abs(sum(printed) - 1) < 1e-3, printed
    assert np.abs(np.array(printed) - computed).max() < 1e-4, (printed, computed)
    (folder / "digits.onnx").unlink()
    failed = subprocess.run([build / "hello"], cwd=folder, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "digits.onnx" in failed.stderr, failed


def one_file(folder, pattern):
    found = sorted(folder.rglob(pattern))
    assert len(found) == 1, (pattern, found)
    return found[0]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prefix = install(folder)
        check_manual(prefix)
        build = build_project(folder, prefix)
        provider, operators = one_file(build, "my_provider.so"), one_file(build, "my_ops.so")
        version = run(build / "host_version").strip()
        assert version and version[0].isdigit(), version

        program = prefix / "bin/backplane"
        check_hello(folder, build, program)
        rows = json.loads(run(program, "providers", "--json", "--plugin-path", provider.parent))
        mine = [row for row in rows if row["file"].endswith("my_provider.so")]
        assert mine and mine[0]["status"] == "loaded" and mine[0]["provider"] == "mine", rows
        assert mine[0]["kernels"] == 2, mine

        check_made_by_hand(folder, prefix)
        make_model(folder / "model.onnx")
        np.save(folder / "x.npy", np.array([-4, 2, 4, 8], np.float32))
        common = ["--plugin-path", provider.parent, "--custom-ops", operators, "--providers", "mine,cpu", "--json"]
        run(program, "run", folder / "model.onnx", "--input", f"x={folder}/x.npy", "--output-dir", folder / "out", *common)
        assert np.load(folder / "out/y.npy").tolist() == [0, 3, 6]
        plan = json.loads(run(program, "inspect", folder / "model.onnx", *common))
        placed = {node["name"]: node["provider"] for node in plan["nodes"]}
        assert placed == {"means": "cpu", "relu": "mine"}, placed
        check_c_provider(folder, build, program)
    print("1 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
