"""Native parts: compiled here because setuptools reads extension modules from setup.py only in its stable interface."""

import sys
from glob import glob
from pathlib import Path
from shutil import copy2, copytree, ignore_patterns

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

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

# what an installed package needs of the checkout; .ci/wheel compiles the extension into `prebuilt`
CARRIED = ("docs", "examples", "pg_extension", "prebuilt")


class Packages(build_py):
    """The packages, and in `dana.checkout` what they need of the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "dana", "checkout")
        unused = ignore_patterns("test", "debian", "META.json.in")
        for folder in filter(Path.exists, map(Path, CARRIED)):
            copytree(folder, target / folder, ignore=unused, dirs_exist_ok=True)
        copy2("pyproject.toml", target)  # the extension's Makefile reads the version from it


class Libraries(build_ext):
    """Plain libraries, called through ctypes: without Python.h, so for every Python."""

    def get_ext_filename(self, fullname: str) -> str:
        if self.editable_mode:
            return super().get_ext_filename(fullname)
        return f"{fullname.replace('.', '/')}.so"


class Wheel(bdist_wheel):
    """A wheel for every Python of this platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(
    cmdclass={"build_py": Packages, "build_ext": Libraries, "bdist_wheel": Wheel},
    ext_modules=[
        Extension(
            "dana.worker._ring",
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
            extra_link_args=["-pthread"],
        ),
    ],
)
