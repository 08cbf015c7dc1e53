#pragma once

// Compiles a function for several instruction sets and picks one when the program starts. The results are the
// same: products and sums are not contracted, and loops over floats are not reordered. Off under sanitizers
// (the choice is made before they start) and for compilers that do not support it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TANDEM_SANITIZED)
#define TANDEM_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define TANDEM_CLONES
#endif
