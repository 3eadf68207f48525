# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""`_native` once more, compiled for processors with AVX2, BMI and BMI2: the same source, and nothing besides.

Compilers make wider loops of the plain ones then, and `native/bits.h` has one of its own. `resilient_pq.format.kernels`
takes it where the processor runs it.
"""

include "_native.pyx"
