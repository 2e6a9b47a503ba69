"""The phases of gpu_check, each with a limit of time; what one has found is kept whatever becomes of it or the others."""

import datetime
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import checks
import figures
from page import Results
from programs import OutOfTime

# Name, what it does, and its limit in seconds. Those by which most is known come first.
PHASES = {
    "limits": (figures.limits, 90), "overhead": (figures.overhead, 120), "overlap": (figures.overlap, 60),
    "networks": (figures.benchmark, 480), "decoding": (figures.decoding, 60), "models": (checks.whole_models, 240),
    "operators": (checks.operators, 300), "placements": (checks.random_placements, 120), "faults": (checks.faults, 120),
    "fixed": (figures.fixed_models, 180), "sanitizer": (checks.sanitizer, 240),
}


class Work:
    """What a phase works with."""

    def __init__(self, program, page, results, folder, quick):
        self.program, self.page, self.results = program, page, results
        self.folder, self.quick = pathlib.Path(folder), quick
        self.tools = pathlib.Path(__file__).resolve().parent
        # A program that brings CUDA's libraries along is to find its own, not those that were found for ours.
        self.own_libraries = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}

    def limits(self):
        """What phase `limits` measured, in this call or an earlier one."""
        return self.results.value("limits", "limits")

    def cases(self):
        return self.program.tree / "cases"

    def why_no_peer(self):
        made = self.program.execute([sys.executable, self.tools / "peer.py", "find"], most_s=60, environment=self.own_libraries)
        return made.stdout.strip() if made.returncode == 0 else f"it could not be asked for ({made.returncode})"


def run_phase(program, results, name, quick, limit):
    function, usual = PHASES[name]
    page = results.begin(name)
    program.deadline = time.monotonic() + (limit or usual)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
            function(Work(program, page, results, folder, quick))
        page.end("done")
    except OutOfTime:
        page.end(f"stopped after its limit of {limit or usual} s")
    except Exception as error:  # whatever it is, the other phases are to run
        traceback.print_exc()
        page.end(f"failed: {type(error).__name__}: {error}"[:300])
    finally:
        program.deadline = None


def head_of(program, command):
    row = program.device()
    device = row["devices"][0]["name"] if row["devices"] else "no device"
    smi = shutil.which("nvidia-smi")
    driver = subprocess.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False).stdout.split() if smi else []
    return [f"By `{command}`, {datetime.date.today().isoformat()}: {device}, driver {driver[0] if driver else 'not known'}, "
            f"{platform.machine()}, {os.cpu_count()} CPUs."]


def run_all(program, report, quick, names=(), folder="gpu_check_results", limit=None, total=None):
    """Runs the phases that are named, or all. The page is of these and of what the folder has of earlier calls; it is
    written anew with every row."""
    command = " ".join(["gpu_check run", *(["--quick"] if quick else []), *(f"--phase {name}" for name in names)])
    results = Results(folder, list(PHASES), report, head_of(program, command))
    end = None if total is None else time.monotonic() + total
    for name in names or PHASES:
        left = None if end is None else end - time.monotonic()
        if left is not None and left < 5:
            print(f"gpu_check: phase {name} is left out: the time of --total is over", flush=True)
            continue
        usual = limit or PHASES[name][1]
        run_phase(program, results, name, quick, usual if left is None else min(usual, left))
    results.write_page()
    print(f"gpu_check: {report} is written; {results.failures()} failed", flush=True)
    return 1 if results.failures() else 0
