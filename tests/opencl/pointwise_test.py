"""Element-wise kernels in the form for GPUs, where an item does several elements at once, which the option tiles=local forces
on a processor, and in the processor's own. Every third case is run, and one of 24 also in the processor's form; with
BACKPLANE_TEST_FULL=1 all in both."""

import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pointwise_cases  # noqa: E402
from rows_test import SKIPPED, keep_some, reason_for_no_device, verify  # noqa: E402

SHARES = (1, 1) if os.environ.get("BACKPLANE_TEST_FULL") == "1" else (3, 24)


def main():
    reason = reason_for_no_device()
    if reason:
        print(f"no OpenCL device: {reason}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="backplane_pointwise_") as name:
        folder = pathlib.Path(name)
        pointwise_cases.write_all(folder)
        passed = failed = 0
        for tiles, share in zip(("local", "vector"), SHARES):
            keep_some(folder, share)
            more, wrong = verify(folder, tiles)
            passed, failed = passed + more, failed + wrong
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
