#include "harness/about.h"

#include <about.h> /* generated from the header block of the version; <> so that it is not harness/about.h */
#include <revision.h>
#include <toolkit.h>

#include <stddef.h>

const char *about_version(void) {
    return FL_VERSION;
}
const char *about_name(void) {
    return FL_NAME;
}
const char *about_title(void) {
    return FL_TITLE;
}
const char *about_parent(void) {
    return FL_PARENT;
}
const char *about_idea(void) {
    return FL_IDEA;
}
const char *about_config(void) {
    return FL_CONFIG;
}
const char *about_others(void) {
    return FL_OTHERS;
}
const char *about_serving(void) {
    return FL_SERVING;
}
const char *about_arch(void) {
    return FL_ARCH;
}
const char *about_exact(void) {
    return FL_ARCH[sizeof FL_ARCH - 2] == 'a' ? FL_ARCH : NULL;
}
const char *about_revision(void) {
    return FL_REVISION;
}
bool about_dirty(void) {
    return FL_DIRTY;
}
const char *about_toolkit(void) {
    return FL_TOOLKIT;
}

bool about_dumps(void) {
#ifdef FA_DEBUG
    return true;
#else
    return false;
#endif
}

#ifdef FL_PEER
extern const struct peer FL_PEER;
const struct peer *about_peer(void) {
    return &FL_PEER;
}
#else
const struct peer *about_peer(void) {
    return NULL;
}
#endif
