#include "harness/philox.h"

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9, k1 += 0xbb67ae85) {
        const uint64_t a = (uint64_t)0xd2511f53 * c0, b = (uint64_t)0xcd9e8d57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}
