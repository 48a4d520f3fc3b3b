/* removed_versions.h - the versions that the ladder no longer has, and the kernel that replaces each of them.
 *
 *     #define REMOVED(first, last, replacement) {first, last, replacement},
 *     #include "common/removed_versions.h"
 *
 * make, analysis and the library read these rows when they are given a name that they do not know, and name the
 * replacement. The tag book-1 keeps the versions: `git show book-1:kernels/wgmma/v44_longest_first.cu`. Numbers are not
 * used again, because records in logs/ carry them: `./fl new` continues after the last one.
 *
 * REMOVED(first, last, replacement)
 *   first, last  the numbers of consecutive versions
 *   replacement  the kernel that computes the same and more
 */
#ifndef REMOVED
#define REMOVED(first, last, replacement)
#endif

/* clang-format off */
REMOVED(38, 41, "attention/mma_sync")
REMOVED(42, 46, "attention/wgmma")
REMOVED(47, 47, "attention/mma_sync")
REMOVED(48, 49, "attention/wgmma")
REMOVED(50, 51, "attention/mma_sync")
REMOVED(52, 52, "attention/wgmma")
/* clang-format on */

#undef REMOVED
