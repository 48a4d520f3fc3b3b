/* jail.h - what the parts of judge-jail share.
 *
 *     jail_limits limits = {.seconds = 120, .memory = 4096, .processes = 64, .file = 256, .folder = 512};
 *     const char *wrong = jail_enter_room(&limits, folder);    // as the first process of new namespaces
 *     if (!wrong) wrong = jail_copy(folder, work, ...);
 *
 *   jail.c         options, the processes, limits, the report
 *   jail_room.c    what the program sees: mounts and users
 *   jail_filter.c  system calls that it may not make
 *   jail_processes.c  what it started
 *   jail_files.c   copies of folders, in which only plain files and folders count
 */
#ifndef FL_JUDGE_JAIL_H
#define FL_JUDGE_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The folder as the program sees it: in the folder for temporary files, which every system has. */
#define JAIL_FOLDER P_tmpdir "/judge"

typedef struct jail_limits {
    uint64_t seconds;
    uint64_t memory, file, folder; /* MiB */
    uint64_t processes;
} jail_limits;

/* Map the user of the new namespace to one that is not root. outer, group: those of the process that made it. False,
 * with errno set. */
bool jail_map_user(uid_t outer, gid_t group);
/* Make everything read-only except a folder of its own, with a small /dev, a new /proc and an empty /run. Returns the
 * name of the step that failed, with errno set; NULL where none did. */
const char *jail_make_room(const jail_limits *limits);
/* Forbid system calls for this process and its children, and end one that sends a signal to the parent of this process.
 * Without namespaces (not apart) also forbid sockets, and signals to other processes. False, with errno set. */
bool jail_filter(bool apart);
/* Without namespaces: let this process and its children write below the working folder only, and to /dev/null. False
 * where Linux lacks Landlock (5.13). */
bool jail_write_here_only(void);

/* Number of processes of the program, and pages of memory. apart: it has a namespace of its own, whose first process
 * calls this; otherwise the descendants of the caller. */
void jail_measure(bool apart, uint64_t *processes, uint64_t *pages);
/* End them all. False if some could not be ended. */
bool jail_end_all(bool apart);
/* Bytes of all plain files of a folder, as far as a copy would see them. */
uint64_t jail_folder_bytes(int folder);

/* A descriptor of a folder that remains writable for its owner alone, whatever happens to the mounts. -1 with errno. */
int jail_open_apart(const char *folder);
/* Copy plain files and folders, up to a size of each file, from one descriptor of a folder to another. Links, pipes,
 * devices, larger files and what is nested too deeply are left out. False where something could not be written. */
bool jail_copy(int from, int to, uint64_t most_bytes);

#endif
