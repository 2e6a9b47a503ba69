"""Reductions, running sums, TopK, softmax and normalisation in the form for GPUs, which the option tiles=local forces on a processor, over
odd shapes, every element type, no elements, and rows so long that several groups divide them. One of 8 cases is
run, and one of 48 also in the processor's form; with BACKPLANE_TEST_FULL=1 all in both."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import row_cases  # noqa: E402

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
SHARES = (1, 1) if os.environ.get("BACKPLANE_TEST_FULL") == "1" else (8, 48)  # most cases cost a run of the device's compiler
NO_CACHE = "provider.opencl.cache_dir=off"  # PoCL has one of its own, and compiles twice for who keeps what it made
SKIPPED = 77  # as CTest is told


def reason_for_no_device():
    done = subprocess.run([PROGRAM, "providers", "--json"], capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout) if row["provider"] == "opencl"]
    return "" if rows and rows[0]["devices"] else rows[0]["reason"] if rows else "no such provider"


def verify(folder, tiles):
    """How many cases passed, and how many did not, after those were printed."""
    command = [PROGRAM, "verify", folder, "--providers", "opencl", "--fallback", "forbid", "--jobs", "2", "--json", "-",
               "--set", f"provider.opencl.tiles={tiles}", "--set", NO_CACHE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    results = json.loads(done.stdout)
    wrong = {case: result for case, result in results.items() if result["status"] != "pass"}
    for case, result in sorted(wrong.items()):
        print(f"{case}, tiles={tiles}: {result['status']}: {result['reason']}")
    return len(results) - len(wrong), len(wrong)


def keep_some(folder, share):
    """Leaves one case of `share`, always the same ones."""
    for case in folder.iterdir():
        if zlib.crc32(case.name.encode()) % share != 0:
            shutil.rmtree(case)


def run(write_all, shares):
    """Tells CTest how the cases do that `write_all` writes: one of each of `shares`, in the form for GPUs and the processor's."""
    reason = reason_for_no_device()
    if reason:
        print(f"no OpenCL device: {reason}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="backplane_rows_") as name:
        folder = pathlib.Path(name)
        write_all(folder)
        passed = failed = 0
        for tiles, share in zip(("local", "vector"), shares):
            keep_some(folder, share)
            more, wrong = verify(folder, tiles)
            passed, failed = passed + more, failed + wrong
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


def main():
    warnings.simplefilter("ignore")
    run(row_cases.write_all, SHARES)


if __name__ == "__main__":
    main()
