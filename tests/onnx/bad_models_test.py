"""Broken models: exit 2, one line that names what is wrong, within a second and little memory; never a crash.

Good models that importers stumble on give their expected outputs. The models are made by tests/data/make_bad_models.py.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
MAKE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"]) / "tests/data/make_bad_models.py"
MEMORY = 512 << 20  # besides the model's own size


def limit_memory():
    # Address space, which is more than what is resident: mapped libraries count too.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def run(*arguments):
    start = time.monotonic()
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60,
                          preexec_fn=limit_memory, env=os.environ | {"LC_ALL": "C"})
    return done, time.monotonic() - start


def complaint(path, row):
    """What is wrong with how a broken model is refused; "" when nothing is."""
    done, seconds = run("inspect", path, "--json")
    error = done.stderr.strip()
    if done.returncode != 2:
        return f"exit {done.returncode}, not 2: {error[:300]}"
    if done.stdout:
        return "something on standard output"
    if len(error.splitlines()) != 1:
        return f"{len(error.splitlines())} lines on standard error: {error[:300]}"
    if seconds > 5:  # the promise is one second on an idle machine
        return f"took {seconds:.1f} s"
    missing = [word for word in row["must_mention"] if word.lower() not in error.lower()]
    return f"does not mention {missing}: {error[:300]}" if missing else ""


NUMPY_TYPES = {"float": "float32", "double": "float64"}  # where ONNX's word is not NumPy's


def array_of(value):
    numbers = [float(v) if isinstance(v, str) else v for v in np.array(value["values"], dtype=object).reshape(-1)]
    return np.array(numbers, dtype=NUMPY_TYPES.get(value["type"], value["type"])).reshape(value["shape"])


def good_complaint(path, row, folder):
    if row.get("needs_op"):
        return complaint(path, {"must_mention": [row["needs_op"]]})
    for number, wanted in enumerate(row["runs"]):
        out = pathlib.Path(folder) / f"out_{number}"
        feeds = []
        for name, value in wanted["feeds"].items():
            file = pathlib.Path(folder) / f"feed_{len(feeds)}.npy"
            np.save(file, array_of(value))
            feeds += ["--input", f"{name}={file}"]
        done, _ = run("run", path, *feeds, "--output-dir", out, "--json")
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr.strip()[:300]}"
        files = {o["name"]: o["file"] for o in json.loads(done.stdout)["outputs"]}
        for name, value in wanted["outputs"].items():
            got, want = np.load(files[name]), array_of(value)
            if got.shape != want.shape or got.dtype != want.dtype or not np.allclose(got, want, equal_nan=True):
                return f"output '{name}' is {got.tolist()}, should be {want.tolist()}"
    return ""


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="backplane_bad_") as folder:
        subprocess.run([sys.executable, MAKE, folder], check=True, stdout=subprocess.DEVNULL)
        manifest = json.loads((pathlib.Path(folder) / "manifest.json").read_text())
        for name, row in manifest.items():
            path = pathlib.Path(folder) / name
            wrong = complaint(path, row) if row["expect"] == "error" else good_complaint(path, row, folder)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"{name}: {wrong}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    if peak > MEMORY:
        print(f"one of the runs took {peak >> 20} MiB")
        failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
