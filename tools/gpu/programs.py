"""The packed programs, called with a limit of time."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tarfile
import threading
import time


# What one program may take where nothing else is said: many times what any takes, but not a phase.
USUAL_S = 60
# Whether a device still does what it is asked for shows in less, also where the driver begins anew with every process.
ALIVE_S = 15
# What a program that failed is run with once more, of how many of a phase, and how much of the end of what it then says is kept.
MOST_LOGS = 6
LOUD = {"CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": "stderr", "CUBLASLT_LOG_LEVEL": "2"}
KEPT_CHARACTERS = 4096


class Ended(Exception):
    """Nothing more can come of a phase; `made` is what the program that was ended had printed, if one ran."""

    def __init__(self, made=None, why=""):
        super().__init__(why)
        self.made = made


class OutOfTime(Ended):
    """The phase's time is over."""


class DeviceGone(Ended):
    """The device does nothing any more."""


class Program:
    """`backplane` and its companions in an unpacked tree; `libraries` are folders of CUDA's libraries. What processes compile and
    choose is kept in the tree, whatever HOME is."""

    def __init__(self, tree, libraries=()):
        self.tree = pathlib.Path(tree)
        self.path = self.tree / "bin/backplane"
        folders = [str(self.tree / "lib"), str(self.tree / "bundled"), os.environ.get("LD_LIBRARY_PATH", ""), *libraries]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(each for each in folders if each),
                            "XDG_CACHE_HOME": str(self.tree.resolve() / "cache")}
        # For programs that run beside others: what they find to be the fastest is not to be kept for those that are timed.
        self.cache_apart = {"XDG_CACHE_HOME": str(self.tree.resolve() / "cache_apart")}
        self.deadline = None  # of time.monotonic()
        self.gone = None  # why the device counts as gone, once it does
        self.missing = ""  # why the provider has none
        self.running, self.lock = set(), threading.Lock()
        self.peer = None  # the search for it, once it is begun
        self.logs = []  # of probes that failed: what was asked for, what it said, and the libraries' words

    def left_s(self):
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def execute(self, words, environment=None, most_s=None):
        """Runs one program to its end, or ends it and all that it started when the time is over: that of the phase
        throws; `most_s` of its own gives code 124, and the device is asked whether it lives. What it had printed is kept."""
        if self.left_s() <= 0:
            raise OutOfTime
        made = self.run(words, environment, most_s)
        if made.returncode == 124:
            self.check_device(made)
            if self.left_s() <= 0:
                raise OutOfTime(made)
        return made

    def check_device(self, made):
        """Throws where it does not answer, for all that is yet to come, and ends what still waits for it."""
        if not self.gone and (self.tree / "bin/gpu_probe").exists():
            self.gone = self.why_not_alive()
        if not self.gone:
            return
        with self.lock:
            for process in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        raise DeviceGone(made, self.gone)

    def why_not_alive(self):
        """The line that says why the device does nothing, or nothing."""
        probe = self.tree / "bin/gpu_probe"
        if not probe.exists():
            return "gpu_probe is not in the tree"
        made = self.run([probe, "alive"], None, ALIVE_S, has_deadline=False)
        return "" if made.returncode == 0 else last_line(made)

    def run(self, words, environment, most_s, has_deadline=True):
        words = [str(word) for word in words]
        if self.gone:
            raise DeviceGone(subprocess.CompletedProcess(words, 124, "", self.gone), self.gone)
        # No `with`: one that waits for a device that hangs may not end when it is told to, and nobody is to wait for it.
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True, env={**self.environment, **(environment or {})})
        limit = min(self.left_s() if has_deadline else float("inf"), most_s or float("inf"))
        with self.lock:
            self.running.add(process)
        try:
            out, err = process.communicate(timeout=None if limit == float("inf") else max(limit, 0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            try:
                out, err = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                out, err = "", "it did not end when it was told to, either"
            return subprocess.CompletedProcess(words, 124, out, f"{err}\ndid not end in {limit:.3g} s")
        finally:
            with self.lock:
                self.running.discard(process)
        made = subprocess.CompletedProcess(words, process.returncode, out, err)
        if self.gone and made.returncode == -signal.SIGKILL:
            raise DeviceGone(made, self.gone)
        return made

    @contextlib.contextmanager
    def held(self):
        """The device stays initialised: where nobody else holds it and its persistence mode is off, the driver would begin anew with
        every process, for seconds."""
        probe = self.tree / "bin/gpu_probe"
        if not probe.exists():
            yield
            return
        process = subprocess.Popen([probe, "hold"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True, env=self.environment)
        try:
            yield
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # nobody waits for one that a device holds
                    process.wait(timeout=1)

    def seed_caches(self):
        """Gives the kernels that were compiled beforehand to every cache that is not there yet."""
        seed = self.tree / "kernels.tar.xz"
        for cache in (self.environment, self.cache_apart):
            folder = pathlib.Path(cache["XDG_CACHE_HOME"]) / "backplane/cuda"
            if not seed.exists() or folder.exists():
                continue
            try:
                with tarfile.open(seed) as archive:
                    archive.extractall(folder)
            except (OSError, tarfile.TarError) as error:  # a Python without xz, for one: they are compiled there
                print(f"gpu_check: the packed kernels are of no use: {error}", flush=True)

    def call(self, *arguments, before=(), most_s=USUAL_S, **more):
        return self.execute([*before, self.path, *arguments], most_s=most_s, **more)

    def probe(self, *arguments, most_s=USUAL_S, **more):
        """The object that gpu_probe prints, or None and the line that says why there is none."""
        words = [self.tree / "bin/gpu_probe", *arguments]
        made = self.execute(words, most_s=most_s, **more)
        if made.returncode == 0:
            return json.loads(made.stdout), ""
        self.keep_log(words, made, most_s)
        return None, last_line(made)

    def keep_log(self, words, made, most_s=USUAL_S, environment=None):
        """Runs a program that failed once more with the libraries' logs, unless it failed by taking too long, or there are many
        logs already."""
        if made.returncode == 124 or len(self.logs) >= MOST_LOGS:
            return
        again = self.execute(words, most_s=most_s, environment={**LOUD, **(environment or {})})
        self.logs.append({"words": " ".join(map(str, words)), "code": made.returncode, "said": last_line(made),
                          "code with logs": again.returncode, "log": again.stderr[-KEPT_CHARACTERS:]})

    def libraries(self):
        """By name: version and file of those of CUDA's that the provider runs, or None and the line that says why."""
        made = self.run([self.tree / "bin/gpu_probe", "libraries", self.tree / "lib/backplane/deps/cuda_engine.so"], None, USUAL_S)
        return (json.loads(made.stdout), "") if made.returncode == 0 else (None, last_line(made))

    def device(self):
        made = self.call("providers", "--json")
        if made.returncode != 0:
            return {"devices": [], "reason": made.stderr.strip() or f"the program ended with {made.returncode}"}
        rows = [row for row in json.loads(made.stdout) if row["file"].endswith("/cuda.so")]
        return rows[0] if rows else {"devices": [], "reason": "cuda.so is not in the tree"}

    def why_no_device(self):
        row = self.device()
        return "" if row["devices"] else row["reason"] or "the driver shows none"


def last_line(made):
    lines = (made.stderr or made.stdout or "").strip().splitlines()
    return lines[-1][:300] if lines else f"ended with {made.returncode}"
