"""Which shared libraries files of a build need, and copies of both for machines that do not have this one's packages."""

import pathlib
import shutil
import subprocess

# What every machine has, the driver, and CUDA's own libraries, which are its users' to install.
NOT_PACKED = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "ld-linux", "linux-vdso", "libstdc++.", "libgcc_s.",
              "libcuda.", "libnvrtc", "libcublas", "libcudnn", "libcudart")


def needed_libraries(file, left_out=NOT_PACKED):
    """Of a file of the build, by name: where the loader finds them."""
    made = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    found = {}
    for line in made.stdout.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "=>" and words[2].startswith("/"):
            found[words[0]] = words[2]
    return {name: path for name, path in found.items() if not name.startswith(left_out)}


def copy_stripped(file, to):
    """Copies a file without its symbols, which a run does not need."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, to)
    subprocess.run(["strip", "--strip-unneeded", to], check=False)


def copy_libraries(files, build, folder, left_out=NOT_PACKED):
    """Copies what the files need and the build does not make, by the names that they need it by; where it was."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = set()
    for file in files:
        for name, path in needed_libraries(file, left_out).items():
            if not pathlib.Path(path).resolve().is_relative_to(build):
                shutil.copy2(pathlib.Path(path).resolve(), folder / name)
                paths.add(str(pathlib.Path(path).resolve()))
    return paths
