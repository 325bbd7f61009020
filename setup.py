"""Native parts: compiled here because setuptools reads extension modules from setup.py only in its stable interface."""

from glob import glob

from setuptools import Extension, setup

# -ffp-contract=off: each operation is rounded on its own (docs/machine.md, arithmetic)
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]

setup(
    ext_modules=[
        Extension(
            "dana.runtime._ring",  # plain libraries both, called through ctypes: no Python.h is needed
            sources=["dana/runtime/native/ring.c"],
            depends=["dana/runtime/native/wire.h"],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "dana.simulator._core",
            sources=sorted(glob("dana/simulator/native/*.c")),
            depends=sorted(glob("dana/simulator/native/*.[hi]*") + glob("hwgen/spec/numerics/native/*.h")),
            include_dirs=["hwgen/spec/numerics/native"],
            # sqrtf as an instruction; the processor's kind is chosen at run time, so no -march
            extra_compile_args=[*FLAGS, "-fno-math-errno"],
        ),
    ]
)
