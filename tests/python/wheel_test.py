#!/usr/bin/env python3
"""The package as users get it: a wheel of tools/wheel in an environment of its own without a network, and an installed tree.

A wheel's libraries must come from the wheel: the test looks in /proc/self/maps for those of this machine's packages.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import suite
from suite import BUILD, DIGITS, SOURCE

# Run in the environment: the digits, and where the libraries were loaded from.
PROGRAM = """
import pathlib, sys
import numpy as np
import backplane
images, labels = np.load(sys.argv[2]), np.load(sys.argv[3])
session = backplane.InferenceSession(sys.argv[1], providers=["cpu"])
answers = session.run(None, {"image": images})[0].argmax(axis=1)
assert (answers == labels).mean() > 0.95, (answers == labels).mean()
print(pathlib.Path(backplane.__file__).parent)
print(backplane._library.file)
for line in sorted({line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "/" in line}):
    print(line)
"""
OF_PACKAGES = ("libspdlog", "libfmt", "libprotobuf", "libboost", "libtomlplusplus")


def run(*command, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BACKPLANE_")}
    made = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False,
                          env={**environment, **more})
    if made.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {made.returncode}\n{made.stdout}{made.stderr}")
    return made.stdout


def make_numpy_folder(folder):
    """A folder for PYTHONPATH with NumPy alone, of this test's own packages."""
    site = pathlib.Path(suite.np.__file__).parents[1]
    folder.mkdir()
    for name in ("numpy", "numpy.libs"):
        if (site / name).exists():
            os.symlink(site / name, folder / name)
    return folder


def read_digits(python, path):
    """The package's folder, the library's file and all files that are mapped, once the digits were read right."""
    lines = run(python, "-c", PROGRAM, DIGITS / "digits.onnx", DIGITS / "images.npy", DIGITS / "labels.npy",
                PYTHONPATH=path).splitlines()
    return lines[0], lines[1], lines[2:]


class Wheel(unittest.TestCase):
    def test_a_wheel_works_in_an_environment_of_its_own(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            run(SOURCE / "tools/wheel", folder / "out", "--build", BUILD)
            (wheel,) = (folder / "out").iterdir()
            self.assertRegex(wheel.name, rf"^backplane-\d+\.\d+\.\d+-py3-none-manylinux_2_36_{platform.machine()}\.whl$")
            self.assertLess(wheel.stat().st_size, 80e6)
            run(sys.executable, "-m", "venv", "--without-pip", folder / "environment")
            python = folder / "environment/bin/python"
            run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel)
            numpy = make_numpy_folder(folder / "numpy alone")
            package, library, loaded = read_digits(python, str(numpy))
            self.assertTrue(package.startswith(str(folder)), package)
            self.assertTrue(library.startswith(package), library)
            for file in loaded:
                if pathlib.Path(file).name.startswith((*OF_PACKAGES, "libbackplane")):
                    self.assertTrue(file.startswith(package), file)
            listed = run(folder / "environment/bin/backplane", "inspect", DIGITS / "digits.onnx", PYTHONPATH=str(numpy))
            self.assertIn("cpu", listed)
            self.check_parts(wheel)

    def check_parts(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            metadata = archive.read(next(one for one in names if one.endswith("/METADATA"))).decode()
        for part in ("backplane/__init__.py", "backplane/py.typed", "backplane/lib/libbackplane.so.1", "backplane/bin/backplane",
                     "backplane/lib/backplane/plugins/cpu.so"):
            self.assertIn(part, names)
        self.assertFalse([one for one in names if "__pycache__" in one])
        self.assertIn("Requires-Dist: numpy", metadata)

    def test_the_same_build_makes_the_same_wheel(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            data = []
            for out in ("first", "second"):
                run(SOURCE / "tools/wheel", folder / out, "--build", BUILD)
                (wheel,) = (folder / out).iterdir()
                data.append(wheel.read_bytes())
            self.assertTrue(data[0] == data[1])

    def test_a_build_that_is_not_there_is_named(self):
        made = subprocess.run([SOURCE / "tools/wheel", "out", "--build", "nowhere"], capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 2)
        self.assertIn("libbackplane.so.1 is not there", made.stderr)


class InstalledTree(unittest.TestCase):
    def test_an_installed_tree_has_the_package_and_can_be_moved(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for component in ("core", "python", "plugin_cpu"):
                run("cmake", "--install", BUILD, "--prefix", folder / "first", "--component", component)
            shutil.move(folder / "first", folder / "moved tree")
            tree = folder / "moved tree"
            package, library, _ = read_digits(sys.executable, f"{tree}/lib/python")
            self.assertEqual((package, library), (f"{tree}/lib/python/backplane", f"{tree}/lib/libbackplane.so.1"))


if __name__ == "__main__":
    suite.main()
