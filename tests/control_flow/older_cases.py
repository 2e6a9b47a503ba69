#!/usr/bin/env python3
"""ONNX 1.12's own cases of If, Loop, Scan, sequences and optionals, as Debian's libonnx-testdata holds them."""

import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
CASES = pathlib.Path("/usr/share/libonnx-testdata/data/node")
FAMILIES = ("if", "loop", "scan", "sequence", "optional", "range")
LEAST = 25  # so that a package of another form is seen


def main():
    if not CASES.is_dir():
        print(f"skipped: {CASES} is missing; Debian's package libonnx-testdata brings it")
        return 77
    with tempfile.TemporaryDirectory(prefix="older_cases_") as folder:
        chosen = [case for family in FAMILIES for case in sorted(CASES.glob(f"test_{family}*"))]
        for case in chosen:
            (pathlib.Path(folder) / case.name).symlink_to(case)
        run = subprocess.run([PROGRAM, "verify", folder], text=True, stdout=subprocess.PIPE)
    print(run.stdout)
    if len(chosen) < LEAST:
        print(f"only {len(chosen)} cases were found in {CASES}")
        return 1
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
