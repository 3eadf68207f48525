"""Builds the compiled kernels; everything else is in pyproject.toml.

Translated one after the other, as Cython is not made for threads, and compiled at once (`tool.distutils.build_ext`).
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = "resilient_pq/format/kernels"


def kernels(name: str, *flags: str) -> Extension:
    """A module of kernels, compiled for the processors that these flags name."""
    module = f"{KERNELS.replace('/', '.')}.{name}"
    arguments = ["-O3", "-g0", *flags]
    return Extension(module, [f"{KERNELS}/{name}.pyx"], include_dirs=[KERNELS], extra_compile_args=arguments)


EXTENSIONS = cythonize([kernels("_native"), kernels("_native_avx2", "-mavx2", "-mbmi", "-mbmi2")], build_dir="build")
for extension in EXTENSIONS:
    extension.optional = True  # where there is no compiler, or none that knows AVX2, it is left out
setup(ext_modules=EXTENSIONS)
