"""ONNX's node cases on the OpenCL provider alone: those listed in node_cases.txt pass, and none is wrong.

  node_cases_test.py            runs every twenty-fourth of the listed cases; all with BACKPLANE_TEST_FULL=1
  node_cases_test.py --all      runs all that ONNX has: what is not listed is refused with a reason
  node_cases_test.py --update   runs all, and writes the list anew: it may only grow

A case passes when at least one of its nodes ran on the device and none elsewhere. The host works out constants and
shapes, which is no node of the run.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from onnx.backend.test.loader import load_model_tests

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "onnx"))
from node_cases_test import PROGRAM, ROUNDED, write_case  # noqa: E402

LIST = HERE / "node_cases.txt"
LEAST_CASES, LEAST_OPERATORS = 800, 100
SHARE = 1 if os.environ.get("BACKPLANE_TEST_FULL") == "1" else 24  # most cases cost a run of the device's compiler
SKIPPED = 77  # as CTest is told

# Wrong by the cases' tolerance on every provider: see tests/onnx/node_cases_test.py.
TOLERATED = {name + form for name in ROUNDED for form in ("", "_expanded")}


def has_device():
    done = subprocess.run([PROGRAM, "providers", "--json"], capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout) if row["provider"] == "opencl"]
    if not rows or not rows[0]["devices"]:
        print(f"no OpenCL device: {rows[0]['reason'] if rows else 'no such provider'}")
        return False
    return True


def verify(folder):
    command = [PROGRAM, "verify", folder, "--providers", "opencl", "--fallback", "forbid", "--jobs", "2", "--json", "-",
               "--set", "provider.opencl.cache_dir=off"]  # PoCL compiles twice for who keeps what it made
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def runs_wholly(result):
    return result["status"] == "pass" and list(result["nodes_on"]) == ["opencl"]


def report(results, listed, wanted):
    """The number of cases that are not as they should be, after they were printed."""
    passing = {case for case, result in results.items() if runs_wholly(result)}
    failed = sorted(wanted - passing)
    failed += [
        case for case, result in sorted(results.items())
        if case not in listed and case not in TOLERATED and result["status"] not in ("pass", "refused")
    ]
    for case in failed:
        result = results.get(case, {"status": "missing", "reason": "listed, but there is no such case", "nodes_on": {}})
        print(f"{case}: {result['status']} on {result['nodes_on']}: {result['reason']}")
    print(f"{len(passing)} passed, {len(failed)} failed, {len(results) - len(passing) - len(failed)} skipped")
    return len(failed)


def main():
    if not has_device():
        sys.exit(SKIPPED)
    whole = "--all" in sys.argv or "--update" in sys.argv
    listed = set(LIST.read_text().split()) if LIST.exists() else set()
    wanted = listed if whole else set(sorted(listed)[::SHARE])
    operators = set()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="backplane_opencl_cases_") as folder:
        for case in load_model_tests(kind="node"):
            if whole or case.name in wanted:
                write_case(case, pathlib.Path(folder) / case.name)
            if case.name in listed:
                operators |= {(node.domain, node.op_type) for node in case.model.graph.node}
        results = verify(folder)
    if "--update" in sys.argv:
        LIST.write_text("\n".join(sorted(listed | {case for case in results if runs_wholly(results[case])})) + "\n")
        return
    failed = report(results, listed, wanted)
    if len(listed) < LEAST_CASES or len(operators) < LEAST_OPERATORS:
        sys.exit(f"the list has {len(listed)} cases of {len(operators)} operators: too few")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
