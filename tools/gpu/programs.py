"""The packed programs, called with a limit of time."""

import json
import os
import pathlib
import signal
import subprocess
import time


# What one program may take where nothing else is said: many times what any takes, but not a phase.
USUAL_S = 90
# What a program that failed is run with once more, of how many of a phase, and how much of the end of what it then says is kept.
MOST_LOGS = 6
LOUD = {"CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": "stderr", "CUBLASLT_LOG_LEVEL": "2"}
KEPT_CHARACTERS = 4096


class OutOfTime(Exception):
    """The phase's time is over; `made` is what the program that was ended had printed, if one ran."""

    def __init__(self, made=None):
        super().__init__()
        self.made = made


class Program:
    """`backplane` and its companions in an unpacked tree; `libraries` are folders of CUDA's libraries."""

    def __init__(self, tree, libraries=()):
        self.tree = pathlib.Path(tree)
        self.path = self.tree / "bin/backplane"
        folders = [str(self.tree / "lib"), str(self.tree / "bundled"), os.environ.get("LD_LIBRARY_PATH", ""), *libraries]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(each for each in folders if each)}
        # For programs that run beside others: what they find to be the fastest is not to be kept for those that are timed.
        self.cache_apart = {"XDG_CACHE_HOME": str(self.tree / "cache_apart")}
        self.deadline = None  # of time.monotonic()
        self.peer = None  # the search for it, once it is begun
        self.logs = []  # of probes that failed: what was asked for, what it said, and the libraries' words

    def left_s(self):
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def execute(self, words, environment=None, most_s=None):
        """Runs one program to its end, or ends it and all that it started when the time is over: that of the phase
        throws; `most_s` of its own gives code 124. What it had printed is kept."""
        if self.left_s() <= 0:
            raise OutOfTime
        words = [str(word) for word in words]
        # No `with`: one that waits for a device that hangs may not end when it is told to, and nobody is to wait for it.
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True, env={**self.environment, **(environment or {})})
        limit = min(self.left_s(), most_s or float("inf"))
        try:
            out, err = process.communicate(timeout=None if limit == float("inf") else limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            try:
                out, err = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                out, err = "", "it did not end when it was told to, either"
            if self.left_s() <= 0:
                raise OutOfTime(subprocess.CompletedProcess(words, 124, out, err)) from None
            return subprocess.CompletedProcess(words, 124, out, f"{err}\ndid not end in {most_s} s")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

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
