"""Rows of runs, for pandas, polars or plain loops."""

import csv
import io
import os
import shutil
import subprocess
import sys

# Columns that stay text even where a value looks like a number.
_TEXT = {"case", "suites", "flow", "cpus", "why", "route"}


def _program():
    """The program: of PATHLINE_PROGRAM, next to this Python, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "pathline")
    found = os.environ.get("PATHLINE_PROGRAM") or (beside if os.access(beside, os.X_OK) else None)
    found = found or shutil.which("pathline")
    if found is None:
        raise FileNotFoundError("the program pathline is not installed: PATHLINE_PROGRAM names it")
    return found


def _value(column, text):
    if text == "":
        return None
    if column not in _TEXT:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return text


def read(run):
    """The series of a run, a dictionary each, with the columns of `pathline report -o FILE.csv`.

    run is its folder or journal, packed or not. Rates are in GB/s and times in ns or us, as column unit says; an
    empty cell is None. `pandas.DataFrame(pathline.read(run))` and `polars.DataFrame(pathline.read(run))` are tables.
    Raises FileNotFoundError without the program, ValueError for what is no run.
    """
    command = [_program(), "report", os.fspath(run), "--format", "csv"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    text = done.stdout.decode("utf-8", "replace")
    if not text.startswith("case,"):
        raise ValueError(done.stderr.decode("utf-8", "replace").strip() or f"{run}: no rows")
    rows = csv.DictReader(io.StringIO(text))
    return [{column: _value(column, text) for column, text in row.items()} for row in rows]
