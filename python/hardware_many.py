"""Everything that several GPUs of a node must show, in one call of at most nine minutes.

    PATHLINE=target/release/pathline PATHLINE_LIBRARY=target/release/libpathline.so \\
        python3 python/hardware_many.py FOLDER [--nvbandwidth PROGRAM] [--nccl-tests FOLDER] [--seconds 540]

Runs with any number of NVIDIA GPUs from 2 on; what needs more, or a tool that is not here, is listed as not run.
FOLDER gets results.json (steps with their goal, what was seen, command, wall and CPU time) and runs.tar.gz. Steps are
in order of what they tell; one that no time is left for is listed too. Goals are those for 4 and 8 GPUs of an HGX H200.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PATHLINE = os.path.abspath(os.environ.get("PATHLINE", "pathline"))
GIB = 1 << 30
VERDICTS = ("OK", "SUSPECT", "FAIL", "UNDECIDED")


def count_gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


class Session:
    """What was seen so far, and the time that is left."""

    def __init__(self, args):
        self.folder = os.path.abspath(args.folder)
        self.end = time.monotonic() + args.seconds
        self.gpus = count_gpus()
        self.steps = []
        os.makedirs(self.folder, exist_ok=True)

    def call(self, command, limit, env=None):
        """Output, exit status, wall and CPU seconds; status None where time ran out."""
        left = min(limit, self.end - time.monotonic() - 5)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        if left < 5:
            return "", None, 0.0, 0.0
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=left, cwd=self.folder,
                env={**os.environ, **(env or {})}, check=False,
            )
            text, status = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            text, status = (error.stdout or b"").decode(errors="replace"), None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return text, status, time.monotonic() - begun, cpu

    def note(self, name, goal, seen, command=(), wall=0.0, cpu=0.0):
        step = {"name": name, "goal": goal, "seen": seen, "command": " ".join(map(str, command))}
        self.steps.append({**step, "wall_s": round(wall, 1), "cpu_s": round(cpu, 1)})
        print(f"{name:28} {goal:34} {seen}", flush=True)
        with open(os.path.join(self.folder, "results.json"), "w") as file:
            json.dump({"gpus": self.gpus, "steps": self.steps}, file, indent=1)

    def step(self, name, goal, command, limit, read=None, env=None):
        """Runs a command and notes what `read` makes of its output, else its last line."""
        text, status, wall, cpu = self.call(command, limit, env)
        with open(os.path.join(self.folder, f"{name.replace(' ', '-')}.txt"), "w") as file:
            file.write(text)
        if status is None:
            seen = f"not run to its end: {limit} s, or no time was left"
        else:
            lines = [line for line in text.splitlines() if line.strip()] or [""]
            verdicts = [line for line in lines if line.split(":")[0] in VERDICTS]
            seen = read(text, status, wall, cpu) if read else (verdicts or lines[-1:])[0]
            seen = f"{seen}; exit {status}, {wall:.1f} s, {cpu:.0f} CPU s"
        self.note(name, goal, seen, command, wall, cpu)
        return text if status is not None else ""


def figures_of(session, run):
    """Verdict, findings and figures of a run."""
    text, status, *_ = session.call([PATHLINE, "report", run, "--json"], 30)
    return json.loads(text) if status in (0, 1, 3) and text.startswith("{") else {}


def default_run(session):
    goal = "75 / 90 s for 4 / 8 GPUs, 360 CPU s"
    session.step("default run", goal, [PATHLINE, "run", "-o", "default", "-q"], 150)
    derived = figures_of(session, "default")
    busy = (derived.get("identity") or {}).get("busy")
    warnings = len(derived.get("warnings", []))
    session.note("default run, disturbed", "", f"busy: {busy}; {warnings} warnings")


def pairs(session, program):
    """Copies between all pairs next to the same of nvbandwidth."""
    for turn in range(2):
        name = f"pairs{turn}"
        session.step(name, "30 s", [PATHLINE, "run", "pairs", "latency", "-o", name, "-q"], 60)
        if program:
            test = "device_to_device_memcpy_read_ce"
            session.step(f"nvbandwidth{turn}", "", [program, "-t", test], 40)
    if not program:
        session.note("pairs by nvbandwidth", "1.00", "not run: no --nvbandwidth")


def collectives(session, folder):
    ranks = ["--ranks", str(session.gpus)]
    session.step("collectives", "1.00 of nccl-tests", [PATHLINE, "run", "ccl-collectives", *ranks, "-o", "ccl", "-q"], 120)
    session.step(
        "collectives as nccl-tests", "", [PATHLINE, "report", "ccl", "--format", "nccl-tests"], 20,
        lambda text, *_: f"{len(text.splitlines())} lines",
    )
    for name in ["all_reduce", "broadcast", "all_gather"]:
        program = os.path.join(folder or "", f"{name}_perf")
        if not folder:
            session.note(f"{name}_perf", "1.00", "not run: no --nccl-tests")
            continue
        for size in [8, GIB]:
            command = [program, "-b", size, "-e", size, "-g", session.gpus, "-n", 20]
            session.step(f"{name} {size}", "", [str(word) for word in command], 30)


def contention(session):
    session.step("contention", "15 s", [PATHLINE, "run", "contention", "-o", "contention", "-q"], 40)
    session.step("twin", "", [PATHLINE, "model", "fit", "contention", "-o", "twin.toml"], 60)
    command = [PATHLINE, "run", "concurrent", "--seed", "777", "-o", "random", "-q"]
    session.step("240 random sets", "", command, 60)
    check = [PATHLINE, "model", "predict", "-m", "twin.toml", "--against", "random"]
    session.step("twin against them", "p95 within repeatability", check, 30)


def health(session):
    verdicts = []
    for nth in range(5):
        text, status, wall, _ = session.call([PATHLINE, "health"], 30)
        verdicts.append(f"{text.split(':')[0][:12]} {status} {wall:.1f} s")
    session.note("health x 5, sound", "OK", "; ".join(verdicts))
    # A copy in a loop on the first GPU is somebody else's work.
    busy = subprocess.Popen(
        [PATHLINE, "run", "gpu0 > gpu1 x 256MiB", "--case-budget", "20s", "-o", "competing", "-q"],
        cwd=session.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    time.sleep(4)
    session.step("health, competing copy", "UNDECIDED", [PATHLINE, "health"], 40)
    busy.terminate()
    busy.wait(20)


def library(session):
    env = {"PYTHONPATH": HERE}
    for name, goal, words, limit in [
        ("hardware_gains.py", "1.9x / 3x plain with 4 / 8", ["400", "60"], 90),
        ("hardware_state_dict.py", "1.5x plain", ["45"], 70),
        ("hardware_load.py", "5x plain", ["16", session.folder], 90),
        ("../examples/measure_helpers.py", "0.98 GEMM, 0.95 all_reduce", ["--seconds", "20"], 60),
    ]:
        command = [sys.executable, os.path.join(HERE, name), *words]
        session.step(os.path.basename(name), goal, command, limit, env=env)


def watch(session):
    """Traffic that is counted next to traffic that is known."""
    for name, command in [
        ("watch an all_reduce", [PATHLINE, "run", "ccl-collectives", "--ranks", str(session.gpus), "-q", "-o", "watched"]),
        ("watch copies", [PATHLINE, "run", "pairs", "-q", "-o", "watched-pairs"]),
    ]:
        session.step(name, "3 %, cost 0.5 %", [PATHLINE, "watch", "--json", "--", *command], 60)


def preset(session):
    command = [PATHLINE, "model", "predict", "-m", "hgx-h200", "--against", "default"]
    read = lambda text, *_: "; ".join(re.findall(r"median[^\n]*", text)[:6])
    session.step("hgx-h200 against the run", "median 4 %", command, 30, read)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--nvbandwidth")
    parser.add_argument("--nccl-tests")
    parser.add_argument("--seconds", type=float, default=540)
    args = parser.parse_args()
    session = Session(args)
    if session.gpus < 2:
        sys.exit(f"{session.gpus} GPUs are here, and two are needed")
    default_run(session)
    preset(session)
    health(session)
    pairs(session, args.nvbandwidth)
    collectives(session, args.nccl_tests)
    library(session)
    contention(session)
    watch(session)
    with tarfile.open(os.path.join(session.folder, "runs.tar.gz"), "w:gz") as tar:
        for name in sorted(os.listdir(session.folder)):
            if name != "runs.tar.gz" and not name.endswith(".safetensors"):
                tar.add(os.path.join(session.folder, name), name)


if __name__ == "__main__":
    main()
