// Which instruction sets the SIMD kernels are compiled for: AVX2 and AVX-512. Include before any Highway header.
#pragma once

#if defined(__x86_64__) && !defined(HWY_BASELINE_TARGETS)
#define HWY_BASELINE_TARGETS HWY_AVX2  // the least a machine must have; nothing older is compiled
#endif
