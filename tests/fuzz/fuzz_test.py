#!/usr/bin/env python3
"""Sessions over mutated models: each loads and runs, or says what is wrong. The same cases in every run; with
BACKPLANE_TEST_FULL more of them."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FULL = os.environ.get("BACKPLANE_TEST_FULL") == "1"
SEEDS, CASES = ("600", "20000") if FULL else ("150", "800")
HERE = pathlib.Path(__file__).resolve().parent


def main():
    program = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "tests/fuzz_model"
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder) / "corpus"
        subprocess.run([sys.executable, HERE / "make_corpus.py", corpus, "--count", SEEDS], check=True)
        command = [program, f"-runs={CASES}", "-seed=1", "-timeout=60", "-rss_limit_mb=4096", "-malloc_limit_mb=65536",
                   "-len_control=0", "-verbosity=1", f"-artifact_prefix={os.getcwd()}/fuzz_model_", corpus]
        made = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    done = re.search(r"Done (\d+) runs", made.stderr)
    if made.returncode != 0 or done is None:
        print(made.stderr[-8000:])
        print("0 passed, 1 failed, 0 skipped")
        return 1
    print(f"{done.group(1)} passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
