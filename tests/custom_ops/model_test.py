#!/usr/bin/env python3
"""The model that uses both libraries of custom_ops/, by the command line; and what is said without them."""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
PROGRAM = BUILD / "bin/backplane"
CASES = SOURCE / "tests/custom_ops"
LIBRARIES = [BUILD / "lib/backplane/custom_ops" / f"{name}.so" for name in ("windowed_mean", "decode_boxes")]


def backplane(*arguments):
    return subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, check=False)


def options(libraries):
    return [part for library in libraries for part in ("--custom-ops", library)]


def the_model_is_right():
    made = backplane("verify", CASES, *options(LIBRARIES))
    return made.returncode == 0 and "1 passed, 0 failed" in made.stdout, made.stdout + made.stderr


def a_missing_library_is_named():
    made = backplane("verify", CASES, *options(LIBRARIES[:1]))
    text = made.stdout + made.stderr
    return made.returncode == 1 and "DecodeBoxes" in text, text


def the_same_library_twice_is_loaded_once():
    made = backplane("verify", CASES, *options([*LIBRARIES, LIBRARIES[0]]))
    return made.returncode == 0, made.stdout + made.stderr


def a_file_that_is_not_there_is_named():
    made = backplane("inspect", CASES / "smoothed_boxes/model.onnx", "--custom-ops", "no_such_library.so")
    return made.returncode == 2 and "no_such_library.so" in made.stderr and made.stderr.count("\n") == 1, made.stderr


def the_committed_model_is_what_the_script_makes():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(CASES / "make_model.py"), folder], check=True)
        for file in sorted(pathlib.Path(folder).rglob("*.*")):
            committed = CASES / "smoothed_boxes" / file.relative_to(folder)
            if file.is_file() and committed.read_bytes() != file.read_bytes():
                return False, f"{committed} differs from what make_model.py writes"
    return True, ""


def main():
    failed = 0
    cases = [the_model_is_right, a_missing_library_is_named, the_same_library_twice_is_loaded_once,
             a_file_that_is_not_there_is_named, the_committed_model_is_what_the_script_makes]
    for case in cases:
        good, text = case()
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {case.__name__}{'' if good else chr(10) + text}")
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
