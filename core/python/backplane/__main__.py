"""The program `backplane` of a wheel or an installed tree, from Python: `python -m backplane inspect MODEL.onnx`."""

import os
import sys

from . import _library


def program() -> str:
    """The program's file: beside the library's folder in an installed tree and in a wheel."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(_library.file))), "bin", "backplane")


def main() -> int:
    """Becomes the program, with the arguments that this process has."""
    file = program()
    if not os.access(file, os.X_OK):
        print(f"backplane: {file} is not there", file=sys.stderr)
        return 2
    folders = [str(_library.PACKAGE / "lib/bundled")]
    if any(name.startswith("libstdc++") for name in _library.from_fallback):
        folders.append(str(_library.PACKAGE / "lib/fallback"))
    if os.path.isdir(folders[0]):
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [*folders, os.environ.get("LD_LIBRARY_PATH")]))
    os.execv(file, [file, *sys.argv[1:]])
    return 2


if __name__ == "__main__":
    sys.exit(main())
