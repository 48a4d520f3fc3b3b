/* sha256.h - the SHA-256 digest (FIPS 180-4), used to name machine code by its content.
 *
 *     sha256_begin(&hash); sha256_add(&hash, bytes, size); sha256_end(&hash, digest);
 */
#ifndef FL_SHA256_H
#define FL_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t size);
void sha256_end(struct sha256 *hash, unsigned char digest[32]);

#endif
