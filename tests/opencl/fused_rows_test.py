"""Element-wise nodes in front of rows: that the rows' kernel takes them over where it should, in both forms (tiles=vector and
tiles=local), and what it makes then."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fused_row_cases  # noqa: E402
import rows_test  # noqa: E402

IS_FULL = os.environ.get("BACKPLANE_TEST_FULL") == "1"


def order_of(model, *settings):
    """The steps of the plan."""
    command = [rows_test.PROGRAM, "inspect", model, "--providers", "opencl", "--json"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"inspect of {model} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["order"]


def count_wrong(folder, steps, tiles):
    """How many models have other steps than they should. Every second one is asked for, and all where the forms differ or
    with BACKPLANE_TEST_FULL=1: each is a run of the program."""
    wrong = 0
    for number, (name, counts) in enumerate(steps.items()):
        if not IS_FULL and counts[0] == counts[1] and number % 2 == (tiles == "local"):
            continue
        order = order_of(folder / name / "model.onnx", f"provider.opencl.tiles={tiles}")
        if len(order) != counts[tiles == "local"]:
            print(f"{name}, tiles={tiles}: {counts[tiles == 'local']} steps expected, of {order}")
            wrong += 1
    return wrong


def main():
    reason = rows_test.reason_for_no_device()
    if reason:
        print(f"no OpenCL device: {reason}")
        sys.exit(rows_test.SKIPPED)
    with tempfile.TemporaryDirectory(prefix="backplane_fused_rows_") as name:
        folder = pathlib.Path(name)
        steps = fused_row_cases.write_all(folder)
        passed = failed = 0
        for tiles in ("vector", "local"):
            failed += count_wrong(folder, steps, tiles)
            more, wrong = rows_test.verify(folder, tiles)
            passed, failed = passed + more, failed + wrong
        plain = order_of(folder / "softmax_of_20/model.onnx", "provider.opencl.fusion=false")
        if len(plain) != 3:
            print(f"fusion=false: {plain}")
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
