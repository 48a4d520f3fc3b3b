/* jail_room.c - what a program in the jail sees. It needs Linux 5.12, and namespaces for ordinary users. */
#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool write_text(const char *path, const char *text) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool whole = write(file, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;
    close(file);
    errno = error;
    return whole;
}

bool jail_map_user(uid_t outer, gid_t group) {
    enum { INNER = 1000 }; /* not root: a program that root starts would have all capabilities of the namespace */
    char users[64], groups[64];
    snprintf(users, sizeof users, "%d %u 1", INNER, (unsigned)outer);
    snprintf(groups, sizeof groups, "%d %u 1", INNER, (unsigned)group);
    return write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", users) &&
           write_text("/proc/self/gid_map", groups);
}

static bool mount_memory(const char *path, uint64_t mib) {
    char options[64];
    snprintf(options, sizeof options, "size=%ju,mode=700", (uintmax_t)(mib << 20));
    return !mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

/* A /dev with the devices that every program expects, made where the folder will be. */
static bool make_devices(void) {
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};
    if (mount("tmpfs", JAIL_FOLDER, "tmpfs", MS_NOSUID, "size=65536,mode=755")) return false;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "/dev/%s", devices[i]);
        snprintf(to, sizeof to, JAIL_FOLDER "/%s", devices[i]);
        const int file = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || close(file) || mount(from, to, NULL, MS_BIND, NULL)) return false;
    }
    return !mkdir(JAIL_FOLDER "/shm", 0700) && !symlink("/proc/self/fd", JAIL_FOLDER "/fd") &&
           !mount(JAIL_FOLDER, "/dev", NULL, MS_MOVE, NULL);
}

static bool make_read_only(void) {
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    return !syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only);
}

static bool folder_exists(void) {
    struct stat found;
    return (!mkdir(JAIL_FOLDER, 0700) || errno == EEXIST) && !lstat(JAIL_FOLDER, &found) && S_ISDIR(found.st_mode);
}

const char *jail_make_room(const jail_limits *limits) {
    enum { SHARED_MIB = 64 };
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return "mounts of its own";
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)) return "a /proc of its own";
    if (!folder_exists()) return "the folder " JAIL_FOLDER;
    if (!make_devices()) return "a /dev of its own";
    if (!access("/run", F_OK) && !mount_memory("/run", 1)) return "an empty /run";
    if (!make_read_only()) return "a read-only file system";
    if (!mount_memory(JAIL_FOLDER, limits->folder)) return "a folder of its own";
    if (!mount_memory("/dev/shm", SHARED_MIB)) return "shared memory of its own";
    return NULL;
}

int jail_open_apart(const char *folder) {
    return (int)syscall(SYS_open_tree, AT_FDCWD, folder, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

bool jail_write_here_only(void) {
    enum { REFER = 1 << 13, TRUNCATE = 1 << 14 }; /* since versions 2 and 3: moving between folders, and truncating */
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    const uint64_t writes = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                            LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                            LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM |
                            (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0);
    const struct landlock_ruleset_attr handled = {.handled_access_fs = writes};
    const struct {
        const char *path;
        uint64_t allowed;
    } all[] = {{".", writes}, {"/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE}};
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    bool done = rules >= 0;
    for (size_t i = 0; done && i < sizeof all / sizeof all[0]; i++) {
        const struct landlock_path_beneath_attr rule = {.allowed_access = all[i].allowed,
                                                        .parent_fd = open(all[i].path, O_PATH | O_CLOEXEC)};
        done = rule.parent_fd >= 0 && !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) &&
               !close(rule.parent_fd);
    }
    done = done && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(SYS_landlock_restrict_self, rules, 0);
    if (rules >= 0) close(rules);
    return done;
}
