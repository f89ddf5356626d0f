"""Builds the wheel: libpathline.so into the Python package, then the program by maturin.

pip calls the functions that pyproject.toml names. By hand, before `maturin build`:

    python3 packaging/pathline_build.py [--profile dist] [--target TRIPLE [--zig]]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACE = os.path.join(ROOT, "python", "pathline", "libpathline.so")


def build_library(profile="dist", target=None, zig=False):
    """Builds libpathline and copies it into the Python package; zig: for glibc 2.17."""
    command = ["cargo", "zigbuild" if zig else "build", "--locked", "--package", "pathline-capi",
               "--profile", profile, "--message-format", "json-render-diagnostics"]
    if target is not None:
        command += ["--target", target + (".2.17" if zig else "")]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    built = [
        name
        for line in output.splitlines()
        for name in json.loads(line).get("filenames") or []
        if os.path.basename(name) == "libpathline.so"
    ]
    if not built:
        sys.exit("cargo named no libpathline.so")
    shutil.copyfile(built[-1], PLACE)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import maturin

    build_library()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    import maturin

    return maturin.build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings=None):
    import maturin

    return maturin.get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    import maturin

    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="dist")
    parser.add_argument("--target")
    parser.add_argument("--zig", action="store_true")
    build_library(**vars(parser.parse_args()))
