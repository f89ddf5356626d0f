"""Whether runs on a loaded machine say so: N short runs of host loops while every CPU has a planted load.

    python3 examples/busy_runs.py [--pathline PATH] [--runs N] [--each K] [--quiet GB/S]

A load copies 64 MiB to and fro, so it takes its CPU and bandwidth. A run passes if its first line is BUSY, it
has no headline value, and every result is marked as busy; or if its best triad is within 10 % of `--quiet`, the
value of the idle machine. Exits with 1 if a run fails.
"""

import argparse
import csv
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time

CASES = ["numa0.huge > * by cpu@numa0[triad-*-t1] x 256MiB",
         "numa0.huge > * by cpu@numa0[copy-*-t1] x 64KiB"]
HEADLINE = "Host memory gives"


def load(cpu):
    os.sched_setaffinity(0, {cpu})
    data = bytearray(64 << 20)
    half = len(data) // 2
    view = memoryview(data)
    while True:
        view[:half] = view[half:]
        view[half:] = view[:half]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def summary(pathline, folder):
    """One run: exit status, terminal text, rows of the CSV."""
    cases = [word for case in CASES for word in ("--case", case)]
    run = output(pathline, "run", *cases, "--case-budget", "100", "--out", folder)
    text = output(pathline, "report", folder, "--full").stdout
    rows = output(pathline, "report", folder, "--format", "csv").stdout
    return run.returncode, text, list(csv.DictReader(io.StringIO(rows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pathline", default="pathline")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--each", type=int, default=1, help="loads on each CPU")
    parser.add_argument("--quiet", type=float, help="best triad of the idle machine, GB/s")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0)) * options.each
    loads = [multiprocessing.Process(target=load, args=(cpu,), daemon=True) for cpu in cpus]
    for process in loads:
        process.start()
    time.sleep(2)
    failed = 0
    print(f"{len(loads)} loads on {len(set(cpus))} CPUs")
    print("run  load  BUSY  headline  results  unmarked  best triad  verdict")
    folder = tempfile.mkdtemp()
    try:
        for nth in range(1, options.runs + 1):
            code, text, rows = summary(options.pathline, os.path.join(folder, str(nth)))
            lines = text.splitlines() or [""]
            busy, headline = lines[0].startswith("BUSY"), HEADLINE in text
            figures = [row for row in rows if row["median"]]
            unmarked = [row for row in figures if "busy: " not in row["why"]]
            rates = [float(row["median"]) for row in figures if "triad" in row["case"]]
            best = max(rates, default=0.0)
            near = options.quiet and abs(best / options.quiet - 1) <= 0.1
            passed = bool(figures) and (busy and not headline and not unmarked or near)
            failed += not passed
            print(f"{nth:>3}  {os.getloadavg()[0]:4.1f}  {'yes' if busy else 'no':4}"
                  f"  {'yes' if headline else 'no':8}  {len(figures):>7}  {len(unmarked):>8}"
                  f"  {best:>10.2f}  {'pass' if passed else f'FAIL (exit {code})'}", flush=True)
    finally:
        for process in loads:
            process.terminate()
        shutil.rmtree(folder)
    print(f"{options.runs - failed} of {options.runs} pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
