"""The phases of gpu_check, each with a limit of time; what one has found is kept whatever becomes of it or the others."""

import datetime
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import checks
import figures
import guests
import kernels
import launches
from page import Results
from programs import DeviceGone, OutOfTime

# Name, what it does, and its limit in seconds. Whether anything works at all comes first, then what is most asked for, and what
# may hang or is of use only where the rest works last: a machine may be there for some of them only.
PHASES = {
    "limits": (figures.limits, 60), "first": (checks.first, 150), "networks": (figures.benchmark, 300),
    "models": (checks.whole_models, 180), "kernels": (kernels.kernels, 170), "operators": (checks.operators, 300),
    "networks_float32": (figures.benchmark_float32, 420), "decoding": (figures.decoding, 60), "overhead": (figures.overhead, 120),
    "launches": (launches.launches, 170),
    "guests": (guests.guests, 90), "placements": (checks.random_placements, 120), "faults": (checks.faults, 120),
    "overlap": (figures.overlap, 60), "fixed": (figures.fixed_models, 180), "sanitizer": (checks.sanitizer, 240),
}
NEED_PEER = {"networks", "networks_float32", "guests"}
# A phase that has less is not begun: it would take the place of what an earlier call has found of it.
LEAST_S = 15
LEAST_OF = {"operators": 80}


class PeerSearch:
    """Whether there is a peer. To import PyTorch for the first time takes minutes on some machines, so it begins when this is
    made, beside whatever else runs; a program that brings CUDA's libraries along is to find its own."""

    MOST_S = 180

    def __init__(self, tools, environment):
        self.started, self.answer = time.monotonic(), None
        self.process = subprocess.Popen([sys.executable, tools / "peer.py", "find"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True, env=environment)

    def why_none(self, most_s):
        """The reason why there is none, or nothing. Waits for `most_s` at most."""
        if self.answer is None:
            try:
                left = self.started + self.MOST_S - time.monotonic()
                out, err = self.process.communicate(timeout=max(0.1, min(left, most_s)))
                lines = err.strip().splitlines() or [f"it ended with {self.process.returncode}"]
                self.answer = out.strip() if self.process.returncode == 0 else f"it could not be asked for: {lines[-1]}"[:300]
            except subprocess.TimeoutExpired:
                self.end()
                self.answer = f"it was not imported in {time.monotonic() - self.started:.0f} s"
        return self.answer

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.communicate(timeout=5)
        except (subprocess.TimeoutExpired, ValueError):  # one that waits for a device; one that was heard already
            pass


class Work:
    """What a phase works with."""

    def __init__(self, program, page, results, folder, quick):
        self.program, self.page, self.results = program, page, results
        self.folder, self.quick = pathlib.Path(folder), quick
        self.tools = pathlib.Path(__file__).resolve().parent
        # A program that brings CUDA's libraries along is to find its own, not those that were found for ours.
        self.own_libraries = own_libraries()

    def limits(self):
        """What phase `limits` measured, in this call or an earlier one."""
        return self.results.value("limits", "limits")

    def cases(self):
        return self.program.tree / "cases"

    def why_no_peer(self):
        if self.program.peer is None:
            self.program.peer = search_peer(self.program)
        return self.program.peer.why_none(self.program.left_s())


def own_libraries():
    return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


def search_peer(program):
    return PeerSearch(pathlib.Path(__file__).resolve().parent, {**program.environment, **own_libraries()})


def run_phase(program, results, name, quick, limit):
    function, usual = PHASES[name]
    page = results.begin(name)
    program.logs = page.found["logs"] = []
    program.deadline = time.monotonic() + (limit or usual)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
            function(Work(program, page, results, folder, quick))
        page.end("done")
    except OutOfTime:
        page.end(f"stopped after its limit of {limit or usual:.3g} s")
    except DeviceGone as error:
        page.end(f"the device does not answer any more: {error}"[:300])
    except Exception as error:  # whatever it is, the other phases are to run
        traceback.print_exc()
        page.end(f"failed: {type(error).__name__}: {error}"[:300])
    finally:
        program.deadline = None


# What takes no more than the driver, and does not know the provider.
WITHOUT_PROVIDER = ("limits",)


def device_name(program):
    devices = program.device()["devices"]
    if devices:
        return devices[0]["name"]
    found, _ = program.probe("alive")
    return found["name"] if found else "no device"


def head_of(program, command, device):
    smi = shutil.which("nvidia-smi")
    made = program.run([smi, "--query-gpu=driver_version,persistence_mode", "--format=csv,noheader"], None, 20) if smi else None
    lines = made.stdout.splitlines() if made is not None and made.returncode == 0 else []
    driver, persistence = (lines[0].split(", ") + ["not known"])[:2] if lines else ("not known", "not known")
    head = [f"By `{command}`, {datetime.date.today().isoformat()}: {device}, driver {driver}, persistence mode {persistence}, "
            f"{platform.machine()}, {os.cpu_count()} CPUs."]
    found, why = program.libraries()
    if found is None:
        return [*head, "", f"Which of CUDA's libraries run is not known: {why}"]
    rows = [f"{name} {each['version']} ({each['path']})" if "version" in each else f"{name}: {each['reason']}"
            for name, each in found.items()]
    return [*head, "", f"The provider's libraries: {', '.join(rows)}."]


def run_all(program, report, quick, names=(), folder="gpu_check_results", limit=None, total=None, rest=False):
    """Runs the phases that are named, or all; with `rest` those of them that no earlier call has done on this device. The page is of
    these and of what the folder has of earlier calls; it is written anew with every row. A device that does not answer any more ends
    the call."""
    end = None if total is None else time.monotonic() + total
    program.seed_caches()
    with program.held():
        return run_each(program, report, quick, names, folder, limit, end, rest)


def run_each(program, report, quick, names, folder, limit, end, rest):
    command = " ".join(["gpu_check run", *(["--quick"] if quick else []), *(["--rest"] if rest else []),
                        *(f"--phase {name}" for name in names)])
    device = device_name(program)
    results = Results(folder, list(PHASES), report, head_of(program, command, device), device, program.tree.resolve())
    wanted = [name for name in names or PHASES if not (rest and results.is_done(name))]
    if program.missing:
        results.head += ["", f"The provider has no device, so that only {', '.join(WITHOUT_PROVIDER)} could run: {program.missing}"]
        wanted = [name for name in wanted if name in WITHOUT_PROVIDER]
    program.peer = search_peer(program) if NEED_PEER.intersection(wanted) else None
    for name in wanted:
        left = None if end is None else end - time.monotonic()
        if left is not None and left < LEAST_OF.get(name, LEAST_S):
            print(f"gpu_check: phase {name} is left out: of the time of --total {left:.0f} s are left", flush=True)
            continue
        usual = limit or PHASES[name][1]
        run_phase(program, results, name, quick, usual if left is None else min(usual, left))
        if program.gone:
            print(f"gpu_check: no other phase is begun: {program.gone}", flush=True)
            break
    if program.peer is not None:
        program.peer.end()
    results.write_page()
    print(f"gpu_check: {report} is written; {results.said()}", flush=True)
    return 0 if results.is_passed() and not program.missing else 1
