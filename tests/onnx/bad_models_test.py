"""Broken models: exit 2, one line that names what is wrong, within a second and little memory; never a crash or a file.

Good models that importers stumble on give their expected outputs. The models are made by tests/data/make_bad_models.py,
and large ones here.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading

import numpy as np
import onnx
from onnx import TensorProto, helper

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
MAKE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"]) / "tests/data/make_bad_models.py"
SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
SECONDS = 30 if SANITIZED else 1
MEMORY = 512 << 20  # besides the size of the model
LARGE = 600 << 20  # of models that hold so much more than what is wrong


def limit_memory():
    # Address space, which is more than what is resident: mapped files and libraries count too.
    if not SANITIZED:  # whose shadow alone is larger
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


class Run:
    """A finished run of the program: how it ended, what it took."""

    def __init__(self, *arguments):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=out, stderr=err, preexec_fn=limit_memory,
                                     env=os.environ | {"LC_ALL": "C"})
            killer = threading.Timer(120, child.kill)
            killer.start()
            _, status, usage = os.wait4(child.pid, 0)
            killer.cancel()
            self.seconds = usage.ru_utime + usage.ru_stime  # of the processor: the machine may be busy
            self.peak = usage.ru_maxrss << 10
            self.code = child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            self.stdout, self.stderr = out.read().decode(), err.read().decode().strip()


def complaint_of_run(done, size, must_mention):
    """What is wrong with how a request was refused; "" when nothing is."""
    if done.code != 2:
        return f"exit {done.code}, not 2: {done.stderr[:300]}"
    if done.stdout:
        return "something on standard output"
    if len(done.stderr.splitlines()) != 1:
        return f"{len(done.stderr.splitlines())} lines on standard error: {done.stderr[:300]}"
    if done.peak > size + MEMORY and not SANITIZED:
        return f"took {done.peak >> 20} MiB for {size >> 20} MiB"
    missing = [word for word in must_mention if word.lower() not in done.stderr.lower()]
    return f"does not mention {missing}: {done.stderr[:300]}" if missing else ""


def refusal(size, must_mention, *arguments):
    """The same of a run of these arguments, and of its time: the best of three."""
    fastest = None
    for _ in range(3):
        done = Run(*arguments)
        wrong = complaint_of_run(done, size, must_mention)
        if wrong:
            return f"{arguments[0]}: {wrong}"
        fastest = min(fastest or done.seconds, done.seconds)
        if fastest <= SECONDS:
            return ""
    return f"{arguments[0]}: took {fastest:.1f} s"


def complaint(path, row, folder):
    """What is wrong with how a broken model is refused, by inspect and by run; "" when nothing is."""
    size = path.stat().st_size
    wrong = refusal(size, row["must_mention"], "inspect", path, "--json")
    if wrong:
        return wrong
    out = pathlib.Path(folder) / "left"
    wrong = refusal(size, row["must_mention"], "run", path, "--output-dir", out, "--profile", f"{folder}/trace.json")
    left = [file for file in (out, pathlib.Path(folder) / "trace.json") if file.is_file() or any(file.glob("*"))]
    return wrong or (f"left {left}" if left else "")


NUMPY_TYPES = {"float": "float32", "double": "float64"}  # where ONNX's word is not NumPy's


def array_of(value):
    numbers = [float(v) if isinstance(v, str) else v for v in np.array(value["values"], dtype=object).reshape(-1)]
    return np.array(numbers, dtype=NUMPY_TYPES.get(value["type"], value["type"])).reshape(value["shape"])


def good_complaint(path, row, folder):
    if row.get("needs_op"):
        return complaint(path, {"must_mention": [row["needs_op"]]}, folder)
    for number, wanted in enumerate(row["runs"]):
        out = pathlib.Path(folder) / f"out_{number}"
        feeds = []
        for name, value in wanted["feeds"].items():
            file = pathlib.Path(folder) / f"feed_{len(feeds)}.npy"
            np.save(file, array_of(value))
            feeds += ["--input", f"{name}={file}"]
        done = Run("run", path, *feeds, "--output-dir", out, "--json")
        if done.code != 0:
            return f"exit {done.code}: {done.stderr[:300]}"
        files = {o["name"]: o["file"] for o in json.loads(done.stdout)["outputs"]}
        for name, value in wanted["outputs"].items():
            got, want = np.load(files[name]), array_of(value)
            if got.shape != want.shape or got.dtype != want.dtype or not np.allclose(got, want, equal_nan=True):
                return f"output '{name}' is {got.tolist()}, should be {want.tolist()}"
    return ""


def varint(number):
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def write_large(path, nodes, extra=0, dims=(LARGE // 4,), size=LARGE):
    """A model with a weight of `size` bytes, which are a hole in the file; `extra` bytes are missing at the end."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    small = helper.make_model(helper.make_graph(nodes, "large", [x], [y]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tensor = TensorProto(name="the_weight", data_type=TensorProto.FLOAT, dims=dims).SerializeToString()
    tensor += bytes([9 << 3 | 2]) + varint(size)  # raw_data
    graph = bytes([5 << 3 | 2]) + varint(len(tensor) + size) + tensor  # initializer
    head = small.SerializeToString() + bytes([7 << 3 | 2]) + varint(len(graph) + size) + graph  # graph, merged
    path.write_bytes(head)
    os.truncate(path, len(head) + size - extra)


def large_complaints(folder):
    """(name, complaint) of models of 600 MiB that are wrong in one place, and of a feed of that size."""
    folder = pathlib.Path(folder)
    path = folder / "large.onnx"
    relu = helper.make_node("Relu", ["x"], ["y"], "the_node")
    add = helper.make_node("Add", ["x", "the_weight"], ["y"], "the_node")
    unknown = helper.make_node("NoSuchOp", ["x"], ["y"], "the_node")
    for name, arguments, mentions in (
            ("large_unknown_op", ([unknown],), ["the_node", "NoSuchOp"]),
            ("large_shapes_do_not_fit", ([add],), ["the_node"]),
            ("large_truncated", ([relu], 1), ["large.onnx"]),
            ("large_dims_do_not_fit", ([add], 0, (LARGE // 4 + 1,)), ["the_weight"])):
        write_large(path, *arguments)
        yield name, complaint(path, {"must_mention": ["large.onnx", *mentions]}, folder)
    for name, start in (("large_zeros", b""), ("large_text", b"This is a letter.\n")):
        path.write_bytes(start)
        os.truncate(path, LARGE)
        yield name, complaint(path, {"must_mention": ["large.onnx"]}, folder)

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    onnx.save(helper.make_model(helper.make_graph([relu], "small", [x], [y]), ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)
    np.lib.format.open_memmap(folder / "large.npy", "w+", np.float32, (LARGE // 4,)).flush()
    yield "large_feed", refusal(LARGE, ["'x'", "[2,3]", str(LARGE // 4)], "run", path, "--input",
                                f"x={folder / 'large.npy'}")


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="backplane_bad_") as folder:
        subprocess.run([sys.executable, MAKE, folder], check=True, stdout=subprocess.DEVNULL)
        manifest = json.loads((pathlib.Path(folder) / "manifest.json").read_text())

        def complaints():
            for name, row in manifest.items():
                path = pathlib.Path(folder) / name
                judge = complaint if row["expect"] == "error" else good_complaint
                yield name, judge(path, row, folder)
            yield from large_complaints(folder)

        for name, wrong in complaints():
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"{name}: {wrong}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
