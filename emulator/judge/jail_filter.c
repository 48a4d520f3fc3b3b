/* jail_filter.c - system calls that a program in the jail may not make: those that reach other processes, the kernel's
 * own state, namespaces, sockets of the file system, and memory that no process shows. They fail with EPERM. A signal
 * to its parent, which watches it, ends the program. */
#include "jail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the jail knows the system calls of x86-64 and AArch64"
#endif

static const int FORBIDDEN[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_connect,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_bpf,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_io_uring_setup,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_open_by_handle_at,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_syslog,
    SYS_quotactl,
    SYS_memfd_create,
    SYS_shmget,
};

/* System calls that reach the network and the processes of the system if the jail has no namespaces, or leave something
 * in it. */
static const int FORBIDDEN_WEAKLY[] = {SYS_socket,          SYS_tkill,
                                       SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
                                       SYS_pidfd_open,      SYS_pidfd_send_signal,
                                       SYS_truncate,        SYS_semget,
                                       SYS_msgget,          SYS_mq_open};
static const int OWN_PROCESS_ONLY[] = {SYS_kill, SYS_tgkill,
                                       SYS_prlimit64}; /* their first argument: 0, or its number */

enum {
    CALLS = sizeof FORBIDDEN / sizeof FORBIDDEN[0],
    WEAKLY = sizeof FORBIDDEN_WEAKLY / sizeof FORBIDDEN_WEAKLY[0],
    OWN = sizeof OWN_PROCESS_ONLY / sizeof OWN_PROCESS_ONLY[0],
    OWN_LENGTH = 6,
    SIGNALS = 2,
    SIGNAL_LENGTH = 7,
};

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, count)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define FAIL(error) RETURN(SECCOMP_RET_ERRNO | (error))

static size_t forbid(struct sock_filter *to, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *to++ = (struct sock_filter)SKIP_UNLESS(calls[i], 1);
        *to++ = (struct sock_filter)FAIL(EPERM);
    }
    return 2 * count;
}

/* The program, whose number this process already has, may end itself, but no other process of the user. */
static size_t forbid_others(struct sock_filter *to) {
    for (size_t i = 0; i < OWN; i++) {
        const struct sock_filter one[OWN_LENGTH] = {
            SKIP_UNLESS(OWN_PROCESS_ONLY[i], OWN_LENGTH - 1),
            LOAD(args[0]),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1, 0),
            FAIL(EPERM),
            RETURN(SECCOMP_RET_ALLOW),
        };
        memcpy(to + OWN_LENGTH * i, one, sizeof one);
    }
    return OWN_LENGTH * (size_t)OWN;
}

/* Signal 0 only asks whether a process exists. */
static size_t end_if_it_signals_its_parent(struct sock_filter *to) {
    static const int calls[SIGNALS] = {SYS_kill, SYS_tgkill};
    for (size_t i = 0; i < SIGNALS; i++) {
        const struct sock_filter one[SIGNAL_LENGTH] = {
            SKIP_UNLESS(calls[i], SIGNAL_LENGTH - 1),
            LOAD(args[i + 1]), /* the signal */
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0),
            LOAD(args[0]),
            SKIP_UNLESS(getppid(), 1),
            RETURN(SECCOMP_RET_KILL_PROCESS),
            LOAD(nr),
        };
        memcpy(to + SIGNAL_LENGTH * i, one, sizeof one);
    }
    return SIGNAL_LENGTH * (size_t)SIGNALS;
}

bool jail_filter(bool apart) {
    /* clone3 hides its flags from a filter: glibc takes clone where it is missing. */
    const struct sock_filter head[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        SKIP_UNLESS(SYS_clone3, 1),
        FAIL(ENOSYS),
    };
    const struct sock_filter tail[] = {
        SKIP_UNLESS(SYS_clone, 3),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET, 0, 1),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
    };
    enum { HEAD = sizeof head / sizeof head[0], TAIL = sizeof tail / sizeof tail[0] };
    struct sock_filter filter[HEAD + SIGNALS * SIGNAL_LENGTH + 2 * (CALLS + WEAKLY) + OWN * OWN_LENGTH + TAIL];
    memcpy(filter, head, sizeof head);
    size_t count = HEAD;
    count += end_if_it_signals_its_parent(filter + count);
    count += forbid(filter + count, FORBIDDEN, CALLS);
    if (!apart) count += forbid(filter + count, FORBIDDEN_WEAKLY, WEAKLY);
    if (!apart) count += forbid_others(filter + count);
    memcpy(filter + count, tail, sizeof tail);
    count += TAIL;
    const struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
