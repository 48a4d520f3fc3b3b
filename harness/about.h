/* about.h - what the executable says of itself: the version's header block and how it was built.
 *
 *     printf("%s %s\n", about_version(), about_config());
 *
 * harness/about.c is compiled once per version, the rest of the harness once for all.
 */
#ifndef FL_ABOUT_H
#define FL_ABOUT_H

#include <stdbool.h>

struct peer;

const char *about_version(void); /* "v07" */
const char *about_name(void);    /* "autotune" */
const char *about_title(void);   /* text after the dash of the header's first line */
const char *about_parent(void);  /* "v06", "" for the first version */
const char *about_idea(void);
const char *about_config(void);   /* short form of the header's config */
const char *about_serving(void);  /* the header's configs that take serving_args, each ended by ';' */
const char *about_others(void);   /* those of the header's other configs, for other sizes of heads, each ended by ';' */
const char *about_arch(void);     /* "sm_80", the least architecture; "sm_90a", the only one */
const char *about_exact(void);    /* "sm_90a", where that architecture is the only one; else NULL */
const char *about_revision(void); /* of git, "unknown" outside a repository */
bool about_dirty(void);           /* built with changes that were not committed */
const char *about_toolkit(void);  /* "13.5.37" */
bool about_dumps(void);           /* kernels were built with -DFA_DEBUG */

/* Launches a library's kernel instead of the version's (harness/peer.h); NULL in a version. */
const struct peer *about_peer(void);

#endif
