"""What the tests of the program share: running it, and making models, inputs and cases."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
SOURCE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"])
PROGRAM = BUILD / "bin/backplane"
FAULTS = BUILD / "tests/cli/cli_faults.so"
ENDLESS_FSYNC = BUILD / "tests/cli/endless_fsync.so"
FLOAT = TensorProto.FLOAT
SANITIZERS = ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
SANITIZERS_OWN = r"==\d+==WARNING: \w+Sanitizer failed to allocate .*\n"


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def value(name, dtype=FLOAT, shape=(2, 3)):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, initializers=(), ir_version=8, opset=17):
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("backplane.tests", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def relu_model(shape=(2, 3)):
    return model([node("Relu", ["x"], ["y"], name="the_relu")], [value("x", shape=shape)], [value("y", shape=shape)])


def identity_model(dtype, shape=(2, 3)):
    """The value comes out as it went in: for what inputs and outputs look like, not for kernels."""
    return model([node("Identity", ["x"], ["y"])], [value("x", dtype, shape)], [value("y", dtype, shape)], ir_version=12,
                 opset=25)


def fault_model(kind):
    fault = node("Fault", ["x"], ["y"], name="the_fault", domain="backplane.tests", kind=kind)
    return model([fault], [value("x")], [value("y")])


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


class ProgramTest(unittest.TestCase):
    """A folder of its own for each test, and the program to run in it."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="backplane_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)

    # Files

    def save(self, what, name="model.onnx"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, np.ndarray):
            np.save(path, what)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        elif isinstance(what, str):
            path.write_text(what, encoding="utf-8")
        else:
            path.write_bytes(what.SerializeToString())
        return path

    def save_case(self, name, content, inputs, outputs, data=None):
        """A test case: inputs and outputs are lists of arrays or protos; None leaves a file out."""
        folder = self.folder / name
        self.save(content, f"{name}/model.onnx")
        for kind, values in (("input", inputs), ("output", outputs)):
            for k, one in enumerate(values):
                if one is not None:
                    proto = numpy_helper.from_array(one) if isinstance(one, np.ndarray) else one
                    self.save(proto, f"{name}/test_data_set_0/{kind}_{k}.pb")
        if data is not None:
            self.save(data if isinstance(data, str) else json.dumps(data), f"{name}/data.json")
        return folder

    # Runs

    def run_program(self, *arguments, environment=None, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BACKPLANE_")}
        return subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, check=False, timeout=120,
                              cwd=self.folder, env={**clean, **(environment or {})}, **more)

    def succeed(self, *arguments, code=0, **more):
        """The program's standard output, after it ended with `code`."""
        made = self.run_program(*arguments, **more)
        self.assertEqual(made.returncode, code, made.stdout.decode() + made.stderr.decode())
        return made.stdout.decode()

    def json_of(self, *arguments, **more):
        """The one JSON value that the program prints with --json."""
        return json.loads(self.succeed(*arguments, "--json", **more))

    def fail_with(self, code, mentions, *arguments, **more):
        """The program must end with `code` and one line on standard error that holds every text of `mentions`."""
        made = self.run_program(*arguments, **more)
        line = re.sub(SANITIZERS_OWN, "", made.stderr.decode(errors="replace"))
        self.assertEqual(made.returncode, code, line + made.stdout.decode(errors="replace"))
        self.assertEqual(line.count("\n"), 1, f"one line is wanted: {line!r}")
        self.assertTrue(line.startswith("backplane: "), line)
        for text in mentions:
            self.assertIn(text.lower(), line.lower())
        return line

    def interrupt(self, number, ready, *arguments, **more):
        """Sends a signal once `ready()`: the program must end as a failed run, with one line."""
        made = subprocess.Popen([str(PROGRAM), *map(str, arguments)], stderr=subprocess.PIPE, cwd=self.folder,
                                **{"stdout": subprocess.PIPE, **more})
        try:
            end = time.monotonic() + 60
            while not ready():
                self.assertIsNone(made.poll(), "it ended before the signal")
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            made.send_signal(number)
            line = made.communicate(timeout=60)[1].decode()
        finally:
            made.kill()
            made.communicate()
        self.assertEqual(made.returncode, 3, line)
        self.assertEqual(line.count("\n"), 1, line)
        self.assertRegex(line, f"^backplane: .*{number.name}")

    def files(self, folder=None):
        folder = folder or self.folder
        return sorted(path.name for path in folder.iterdir())


def main():
    """Runs the tests of the calling script and closes with the line that tools/test counts."""
    done = unittest.main(exit=False, verbosity=1).result
    broken = {getattr(test, "test_case", test).id() for test, _ in done.failures + done.errors}  # subtests count once
    failed = len(broken)
    skipped = len(done.skipped)
    print(f"{done.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    raise SystemExit(1 if failed else 0)
