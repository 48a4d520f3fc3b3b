/* jail_filter.c - system calls that a program in the jail may not make: those that reach other processes, the kernel's
 * own state, namespaces, and sockets of the file system. They fail with EPERM. */
#include "jail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

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
};

enum { CALLS = sizeof FORBIDDEN / sizeof FORBIDDEN[0] };

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, count)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define FAIL(error) RETURN(SECCOMP_RET_ERRNO | (error))

bool jail_filter(void) {
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
    struct sock_filter filter[HEAD + 2 * CALLS + TAIL];
    size_t count = 0;
    for (size_t i = 0; i < HEAD; i++) filter[count++] = head[i];
    for (size_t i = 0; i < CALLS; i++) {
        filter[count++] = (struct sock_filter)SKIP_UNLESS(FORBIDDEN[i], 1);
        filter[count++] = (struct sock_filter)FAIL(EPERM);
    }
    for (size_t i = 0; i < TAIL; i++) filter[count++] = tail[i];
    const struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
