# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

"""Recipe for Spack. Not tried with Spack yet.

    spack repo add packaging/spack        # once, from a clone of pathline
    spack install pathline
"""

import os

from spack.package import *


class Pathline(Package):
    """Measures, models and explains every path that data takes in a multi-GPU node."""

    # A clone: the recipe lies in it.
    git = "file://" + os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))

    license("Apache-2.0")

    version("main", branch="main")

    # Vendor libraries and MPI are loaded when the program runs; none is needed to build it.
    depends_on("c", type="build")
    depends_on("rust@1.90:", type="build")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("install", "--locked", "--profile", "dist", "--root", prefix, "--path", "crates/cli")
        pathline = Executable(prefix.bin.pathline)
        mkdirp(prefix.share.man.man1)
        pathline("man", "--dir", prefix.share.man.man1)
