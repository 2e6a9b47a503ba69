"""Element-wise nodes in front of rows: that the rows' kernel takes them over where it should, in both forms (tiles=vector and
tiles=local), and what it makes then. An eighth of the cases are run, and one of 24 in the processor's form; with
BACKPLANE_TEST_FULL=1 all in both."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fused_row_cases  # noqa: E402
import rows_test  # noqa: E402

SHARES = (1, 1) if os.environ.get("BACKPLANE_TEST_FULL") == "1" else (8, 24)  # most cases cost a run of the device's compiler


def order_of(model, *settings):
    """The steps of the plan."""
    command = [rows_test.PROGRAM, "inspect", model, "--providers", "opencl", "--json"]
    for setting in (*settings, rows_test.NO_CACHE):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"inspect of {model} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["order"]


def count_wrong(folder, steps, tiles):
    """How many of the models have other steps than they should."""
    wrong = 0
    for name, counts in steps.items():
        if not (folder / name).exists():
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
        plain = order_of(folder / "softmax_of_20/model.onnx", "provider.opencl.fusion=false")
        passed, failed = 0, len(plain) != 3
        if failed:
            print(f"fusion=false: {plain}")
        for tiles, share in zip(("local", "vector"), SHARES):
            rows_test.keep_some(folder, share)
            failed += count_wrong(folder, steps, tiles)
            more, wrong = rows_test.verify(folder, tiles)
            passed, failed = passed + more, failed + wrong
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
