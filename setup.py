"""Native parts: compiled here because setuptools reads extension modules from setup.py only in its stable interface."""

import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).parent))  # pip builds without it

from dana.simulator import headers

# what the core is built of says the tables anew; as it is, if it says so already, or all of it would be built again
CONTRACT = Path("dana/simulator/native/contract.h")
if not CONTRACT.exists() or CONTRACT.read_text(encoding="utf-8") != headers.header():
    CONTRACT.write_text(headers.header(), encoding="utf-8")

# -ffp-contract=off: each operation is rounded on its own (docs/machine.md, arithmetic)
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
NUMERICS = "hwgen/spec/numerics/native"
CORE_HEADERS = sorted(glob("dana/simulator/native/*.[hi]*") + glob(f"{NUMERICS}/*.h"))

setup(
    ext_modules=[
        Extension(
            "dana.worker._ring",  # plain libraries all, called through ctypes: no Python.h is needed
            sources=["dana/worker/native/ring.c"],
            depends=["dana/worker/native/wire.h", "dana/worker/native/messages.h"],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "dana.storage._permute",
            sources=["dana/storage/native/permute.c"],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "dana.trainer.data._survey",
            sources=["dana/trainer/data/native/survey.c"],
            depends=["dana/trainer/data/native/survey.h", "dana/trainer/data/native/tally.h", *CORE_HEADERS],
            include_dirs=["dana/simulator/native", NUMERICS],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "dana.trainer.data._likelihood",
            sources=["dana/trainer/data/native/likelihood.c"],
            depends=["dana/trainer/data/native/likelihood.h", *CORE_HEADERS],
            include_dirs=["dana/simulator/native", NUMERICS],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "dana.simulator._core",
            sources=sorted(glob("dana/simulator/native/*.c")),
            depends=CORE_HEADERS,
            include_dirs=[NUMERICS],
            # sqrtf as an instruction; the processor's kind is chosen at run time, so no -march
            extra_compile_args=[*FLAGS, "-fno-math-errno"],
        ),
    ]
)
