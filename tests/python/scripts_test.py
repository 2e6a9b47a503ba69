#!/usr/bin/env python3
"""Programs of users: one that was written for ONNX Runtime, the README's, `python -m backplane`; and a library that is not there."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import suite
from suite import DIGITS, SOURCE, np

import backplane


def run(*command, folder=None, **environment):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(SOURCE / "core/python"), **environment})


class Programs(unittest.TestCase):
    def test_a_program_for_onnx_runtime_runs_unchanged(self):
        text = (SOURCE / "tests/python/ort_script.py").read_text(encoding="utf-8")
        line = "import onnxruntime as ort\n"
        self.assertEqual(text.count(line), 1)
        made = []
        for program in (text, text.replace(line, "import backplane as ort\n")):
            ran = run("-c", program, DIGITS / "digits.onnx", DIGITS / "images.npy")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            made.append(json.loads(ran.stdout))
        self.assertEqual(made[0], made[1])

    def test_imports_from_within_onnx_runtimes_package(self):
        """With this package in its place, as programs of others are run."""
        program = ("import sys, backplane; sys.modules['onnxruntime'] = backplane\n"
                   "from onnxruntime.capi import _pybind_state as C\n"
                   "from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession\n"
                   "import onnxruntime.capi.onnxruntime_pybind11_state as state\n"
                   "import onnxruntime as ort\n"
                   "assert 'CPUExecutionProvider' in C.get_available_providers(), C.get_available_providers()\n"
                   "assert issubclass(ort.capi.onnxruntime_pybind11_state.InvalidArgument, state.Fail)\n"
                   "try:\n    InferenceSession('not there.onnx')\nexcept state.NoSuchFile:\n    print('as there')")
        ran = run("-c", program)
        self.assertEqual((ran.returncode, ran.stdout), (0, "as there\n"), ran.stderr)

    def test_the_readmes_example(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("digits.onnx", "images.npy"):
                shutil.copy(DIGITS / name, folder)
            ran = run(SOURCE / "tests/python/example.py", folder=folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        labels = np.load(DIGITS / "labels.npy")[:10]
        self.assertEqual(ran.stdout.splitlines()[0], str(labels))
        self.assertIn("cpu", ran.stdout)

    def test_the_program_is_there_for_python(self):
        ran = run("-m", "backplane", "inspect", DIGITS / "digits.onnx", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("nodes", json.loads(ran.stdout))

    def test_a_missing_library_says_where_it_was_looked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = run("-c", "import backplane", BACKPLANE_LIBRARY=folder)
            self.assertIn("ImportError", ran.stderr)
            self.assertIn(f"{folder}/libbackplane.so.1 (not there)", ran.stderr)
            self.assertIn("Set BACKPLANE_LIBRARY", ran.stderr)
            (open(f"{folder}/libbackplane.so.1", "wb")).close()
            self.assertIn("file too short", run("-c", "import backplane", BACKPLANE_LIBRARY=folder).stderr)


class Package(unittest.TestCase):
    def test_what_is_public_has_a_docstring_and_types(self):
        wrong = []
        for file in sorted((SOURCE / "core/python/backplane").glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                    continue
                if not ast.get_docstring(node) and node.name not in ("get", "set"):  # parts of a property
                    setter = any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in node.decorator_list)
                    if not setter:
                        wrong.append(f"{file.name}: {node.name} has no docstring")
        self.assertEqual(wrong, [])
        self.assertTrue((SOURCE / "core/python/backplane/py.typed").is_file())

    def test_every_name_is_there(self):
        for name in backplane.__all__:
            self.assertTrue(hasattr(backplane, name), name)
        self.assertRegex(backplane.__version__, r"^\d+\.\d+\.\d+$")

    def test_functions_are_declared_as_the_headers_have_them(self):
        """The number of parameters of each C function that the package calls."""
        import re

        text = ""
        for header in sorted((SOURCE / "core/include/backplane").rglob("*.h")):
            text += re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        functions = {}
        for found in re.finditer(r"BACKPLANE_API\s+([\w\s*]+?)\bbackplane_(\w+)\(([^)]*)\)\s*;", text):
            result, name, parameters = found.groups()
            functions[name] = (" ".join(result.split()), 0 if parameters.strip() == "void" else parameters.count(",") + 1)
        for name, (result, arguments) in backplane._library._FUNCTIONS.items():
            self.assertIn(name, functions)
            self.assertEqual(functions[name][1], len(arguments), name)
            self.assertEqual(functions[name][0] == "void", result is None, name)


if __name__ == "__main__":
    suite.main()
