"""Builds the compiled kernels; everything else is in pyproject.toml.

Translated one after the other, as Cython is not made for threads, and compiled at once (`tool.distutils.build_ext`).
They are built for the limited API of Python 3.11, so one wheel of a platform serves every later Python.
"""

import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

KERNELS = "resilient_pq/format/kernels"
#: A Python without a global lock has no limited API before 3.15.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")


def kernels(name: str, *flags: str) -> Extension:
    """A module of kernels, compiled for the processors that these flags name."""
    module = f"{KERNELS.replace('/', '.')}.{name}"
    arguments = ["-O3", "-g0", *flags]
    return Extension(
        module,
        [f"{KERNELS}/{name}.pyx"],
        include_dirs=[KERNELS],
        extra_compile_args=arguments,
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
        py_limited_api=LIMITED,
    )


class BuildModules(build_py):
    """The step of a build that copies the modules."""

    def run(self) -> None:
        """Copies the modules, and removes those of an earlier build that have been deleted since."""
        super().run()
        copied = {Path(path).resolve() for path in self.get_outputs()}
        for module in Path(self.build_lib).rglob("*.py"):
            if module.resolve() not in copied and not self.editable_mode:
                module.unlink()


EXTENSIONS = cythonize(
    [kernels("_native"), kernels("_native_avx2", "-mavx2", "-mbmi", "-mbmi2", "-mpclmul")], build_dir="build"
)
for extension in EXTENSIONS:
    extension.optional = True  # where there is no compiler, or none that knows AVX2, it is left out
setup(
    ext_modules=EXTENSIONS,
    cmdclass={"build_py": BuildModules},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
