/* version.c - one embedded version: compiled with IMAGES, IMAGE_COUNT and ENTRY as its own names. */
#include "library/version.h"

#include <about.h> /* generated from the header block of the version */
#include <toolkit.h>

extern const struct code_image IMAGES[];
extern const uint64_t IMAGE_COUNT;

extern const struct version ENTRY;
const struct version ENTRY = {.version = FL_VERSION,
                              .name = FL_NAME,
                              .config = FL_CONFIG,
                              .others = FL_OTHERS,
                              .arch = FL_ARCH,
                              .toolkit = FL_TOOLKIT,
                              .images = IMAGES,
                              .image_count = &IMAGE_COUNT};
