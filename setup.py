"""Builds the compiled kernels; everything else is in pyproject.toml.

Translated one after the other, as Cython is not made for threads, and compiled at once (`tool.distutils.build_ext`).
They are built for the limited API of Python 3.11, so one wheel of a platform serves every later Python.
"""

import sysconfig

from Cython.Build import cythonize
from setuptools import Extension, setup

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


EXTENSIONS = cythonize(
    [kernels("_native"), kernels("_native_avx2", "-mavx2", "-mbmi", "-mbmi2", "-mpclmul")], build_dir="build"
)
for extension in EXTENSIONS:
    extension.optional = True  # where there is no compiler, or none that knows AVX2, it is left out
setup(ext_modules=EXTENSIONS, options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {})
