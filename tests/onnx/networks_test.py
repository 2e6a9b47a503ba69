"""Whole networks give the results that an independent reference gives.

The twelve networks of $BACKPLANE_SHARED_DATA/data/cases, where they are; and ONNX's nine light networks out of the `onnx`
wheel with random weights, expected outputs by ONNX Runtime without optimisations (make_light_models.py).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
HERE = pathlib.Path(__file__).resolve().parent
LIGHT = ["squeezenet", "shufflenet", "inception_v2", "densenet121", "resnet50"]  # the other four weigh 1.1 GB together


def verify(folder):
    """{case: result} of every case below the folder."""
    done = subprocess.run([PROGRAM, "verify", folder, "--json", "-"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def report(title, results):
    """Prints what is not right; the numbers of right and wrong cases."""
    failed = {case: r for case, r in results.items() if r["status"] != "pass"}
    for case, result in failed.items():
        print(f"{title}: {case}: {result['status']}: {result['reason']}")
    for case, result in results.items():
        if result["status"] == "pass" and not result["nodes_on"]:
            print(f"{title}: {case}: no node ran anywhere")
            failed[case] = result
    return len(results) - len(failed), len(failed)


def main():
    counts = []
    shared = os.environ.get("BACKPLANE_SHARED_DATA")
    cases = pathlib.Path(shared) / "data/cases" if shared else None
    if cases and cases.is_dir():
        counts.append(report("cases", verify(cases)))
    else:
        print("BACKPLANE_SHARED_DATA is not set: the twelve networks are left out")
    full = os.environ.get("BACKPLANE_TEST_FULL") == "1"
    with tempfile.TemporaryDirectory(prefix="backplane_light_") as folder:
        only = [] if full else ["--only", *LIGHT]
        subprocess.run([sys.executable, HERE / "make_light_models.py", folder, *only], check=True, stdout=subprocess.DEVNULL)
        counts.append(report("light", verify(folder)))
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
