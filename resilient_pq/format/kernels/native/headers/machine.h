/* What the processor can do that runs this. */

#ifndef RPQ_MACHINE_H
#define RPQ_MACHINE_H

/* Whether this is compiled for processors with AVX2. */
#ifdef __AVX2__
#define BUILT_FOR_AVX2 1
#else
#define BUILT_FOR_AVX2 0
#endif

/* Whether it, and the system with it, runs AVX2, BMI, BMI2 and PCLMUL: what `_native_avx2` is compiled for. */
static int runs_avx2(void) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("pclmul");
#else
    return 0;
#endif
}

#endif
