/* philox.h - random numbers that are a function of a counter and a key: Philox 4x32-10 (Salmon et al. 2011).
 *
 *     philox(counter, key, words);
 */
#ifndef FL_PHILOX_H
#define FL_PHILOX_H

#include <stdint.h>

/* Four random words. */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

#endif
