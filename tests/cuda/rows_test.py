"""The cases of tests/opencl/row_cases.py on the stand-in, whose items are fibers of this processor: rows that items share, with CUDA's
shuffles. One of eight is run; with BACKPLANE_TEST_FULL=1 all."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "opencl"))
import row_cases  # noqa: E402
from rows_test import keep_some  # noqa: E402

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
SHARE = 1 if os.environ.get("BACKPLANE_TEST_FULL") == "1" else 8  # every kernel costs a run of the C++ compiler


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="backplane_cuda_rows_") as name:
        folder = pathlib.Path(name)
        row_cases.write_all(folder)
        keep_some(folder, SHARE)
        cases = sorted(folder.iterdir())
        command = [BUILD / "bin/backplane", "verify", *cases, "--plugin-path", BUILD / "tests/cuda_stand_in_plugin", "--providers",
                   "cuda_stand_in", "--fallback", "forbid", "--jobs", "2", "--timeout", "300", "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    results = json.loads(done.stdout)
    wrong = {case: result for case, result in results.items() if result["status"] != "pass"}
    for case, result in sorted(wrong.items()):
        print(f"{case}: {result['status']}: {result['reason']}")
    if len(results) != len(cases):
        sys.exit(f"{len(cases)} cases were written and {len(results)} run")
    print(f"{len(results) - len(wrong)} passed, {len(wrong)} failed, 0 skipped")
    sys.exit(len(wrong) > 0)


if __name__ == "__main__":
    main()
