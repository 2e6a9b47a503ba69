"""Element-wise kernels in the form for GPUs, where an item does several elements at once, which the option tiles=local forces
on a processor, and in the processor's own. Every sixth case is run, and one of 48 also in the processor's form; with
BACKPLANE_TEST_FULL=1 all in both."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pointwise_cases  # noqa: E402
from rows_test import run  # noqa: E402

SHARES = (1, 1) if os.environ.get("BACKPLANE_TEST_FULL") == "1" else (6, 48)


def main():
    run(pointwise_cases.write_all, SHARES)


if __name__ == "__main__":
    main()
