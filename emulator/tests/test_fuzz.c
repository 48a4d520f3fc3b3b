/* test_fuzz.c - any bytes give an error or a program, and any program ends: never a crash or a hang.
 *
 *     build/tests/test_fuzz                      # TAP; the same inputs every time
 *     SECONDS_TO_FUZZ=600 build/tests-san/test_fuzz # as many inputs as fit in that time
 *     build/tests-san/test_fuzz 1234 1           # input 1234 alone; a block that fails names its first
 *
 * An input is a seed program with a few random edits: bytes, ranges, tokens, lines. Modules that load are also run,
 * with few steps. The alarm ends a run that hangs.
 */
#include "emulator/emu.h"
#include "runtime/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 500, BLOCKS = 8, INPUT_BYTES = 96 * 1024, HANG_SECONDS = 600, EXCERPT_BYTES = 12000 };

#define HEAD ".version 8.3\n.target sm_80\n.address_size 64\n"

static const char *const seeds[] = {
    HEAD ".file 1 \"a.cu\"\n.visible .entry f(.param .u64 p, .param .u32 n) .maxntid 64, 1, 1\n{\n.reg .pred %p<3>;\n"
         ".reg .b32 %r<6>;\n.reg .b64 %rd<4>;\n.loc 1 3 5\nld.param.u64 %rd1, [p];\nld.param.u32 %r1, [n];\n"
         "mov.u32 %r2, %tid.x;\nsetp.ge.s32 %p1, %r2, %r1;\n@%p1 bra $L1;\nmul.wide.u32 %rd2, %r2, 4;\n"
         "add.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r3, [%rd3+0];\nadd.s32 %r3, %r3, -7;\nst.global.u32 [%rd3], %r3;\n"
         "$L1:\nret;\n}\n",
    HEAD
    ".extern .shared .align 16 .b8 smem[];\n.entry g(.param .align 8 .b8 s[16])\n{\n.reg .b32 %r<9>;\n.reg .b64 "
    "%rd<3>;\n"
    ".reg .f32 %f<9>;\nmov.u32 %r1, smem;\nmov.u32 %r2, %laneid;\nshl.b32 %r3, %r2, 4;\nadd.u32 %r4, %r1, %r3;\n"
    "ld.param.u64 %rd1, [s+8];\ncp.async.cg.shared.global.L2::128B [%r4], [%rd1], 16;\ncp.async.commit_group;\n"
    "cp.async.wait_group 0;\nbar.sync 0;\nldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5,%r6,%r7,%r8}, [%r4];\n"
    "mov.f32 %f1, 0f3F800000;\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, "
    "{%r5,%r6,%r7,%r8}, {%r5,%r6}, {%f1,%f1,%f1,%f1};\nret;\n}\n",
    HEAD
    ".shared .align 8 .b8 m[64];\n.global .align 4 .b8 text[6] = {120, 32, 62, 32, 48, 0};\n.entry h()\n{\n"
    ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<4>;\n.reg .b128 %q;\nmov.u32 %r1, m;\nmov.u32 %r2, %tid.x;\n"
    "setp.eq.and.s32 %p1|%p2, %r2, 0, %p3;\n{\n.reg .b16 %h, %l;\nmov.b32 {%h, %l}, %r2;\nmov.b32 %r3, {%l, %h};\n}\n"
    "@%p1 mbarrier.init.shared.b64 [%r1], 32;\nbar.warp.sync -1;\nmbarrier.arrive.shared.b64 %rd1, [%r1];\n"
    "$W:\nmbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;\n@!%p3 bra $W;\n"
    "shfl.sync.bfly.b32 %r4|%p1, %r3, 1, 0x1f, 0xffffffff;\nvote.sync.ballot.b32 %r5, %p1, -1;\n"
    "lop3.b32 %r6, %r4, %r5, %r3, 0x96;\nprmt.b32 %r7, %r6, %r5, 0x5410;\nbfi.b32 %r8, %r7, %r6, 3, 9;\n"
    "mov.b64 %rd2, {%r7, %r8};\nmov.b128 %q, {%rd1, %rd2};\ncvt.u64.u32 %rd3, %r8;\natom.shared.add.u32 %r4, [%r1+16], "
    "1;\n"
    "exit;\n}\n",
    HEAD
    ".entry k()\n{\n.reg .pred %p;\n.reg .b32 %r<5>;\n.local .align 16 .b8 stack[64];\n.reg .b64 %rd<4>;\nmov.u32 %r1, "
    "9;\n"
    "loop:\nsub.s32 %r1, %r1, 1;\nmov.u64 %rd1, stack;\nand.b32 %r2, %r1, 7;\nmad.wide.u32 %rd2, %r2, 4, %rd1;\n"
    "st.local.v2.u32 [%rd1+8], {%r1, %r2};\nld.local.u32 %r3, [%rd2];\nsetp.gt.s32 %p, %r1, 0;\n@%p bra.uni loop;\n"
    "call.uni (_), vprintf, (%rd1, %rd2);\ntrap;\nret;\n}\n",
    HEAD
    ".func (.param .b32 r) odd(.param .b32 n);\n.func (.reg .b32 d) even(.reg .b32 n)\n{\n.reg .pred %p;\n"
    ".local .align 8 .b8 kept[8];\nst.local.u32 [kept+4], n;\nmov.b32 d, n;\nsetp.eq.u32 %p, n, 0;\n@%p ret;\n"
    "sub.u32 n, n, 1;\n{\n.param .b32 param0;\nst.param.b32 [param0], n;\n.param .b32 retval0;\n"
    "call.uni (retval0), odd, (param0);\nld.param.b32 d, [retval0+0];\n}\nld.local.u32 n, [kept+4];\n"
    "add.u32 d, d, n;\nret;\n}\n.func (.param .b32 r) odd(.param .b32 n)\n{\n.reg .b32 %r<4>;\n"
    "ld.param.b32 %r1, [n];\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\ncall (%r2), even, (%r1);\n"
    "st.param.b32 [r], %r2;\n}\n.global .align 8 .u64 table[2] = {0, odd};\n.entry f()\n{\n.reg .b32 %r<4>;\n"
    ".reg .b64 %rd<3>;\n.reg .pred %p;\nmov.u32 %r1, %tid.x;\nmov.u64 %rd1, table;\nld.global.u64 %rd2, [%rd1+8];\n"
    "setp.lt.u32 %p, %r1, 7;\n@%p bra few;\nbar.warp.sync -1;\ncall (%r2), even, (%r1);\nbra all;\nfew:\n{\n"
    ".param .b32 param0;\nst.param.b32 [param0], %r1;\n.param .b32 retval0;\n"
    "p0 : .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (retval0), %rd2, (param0), p0;\n}\n"
    "bar.warp.sync -1;\nall:\nt0 : .calltargets odd;\nbar.sync 0;\nret;\n}\n",
};

/* clang-format off */
static const char *const tokens[] = {
    "0", "-1", "0xffffffffffffffff", "18446744073709551616", "-2147483648", "0f7FC00000", "0d7FF0000000000000",
    "1e999", "%tid.x", "%laneid", "%clock64", "%r4294967295", "%r1", "%rd1", "%f1", "%p1", "_", "smem", "text", "$L1",
    "bra $L1;", ".reg .b64 %z<4294967295>;", ".reg .pred %r1;", ".shared .align 0 .b8 x[99999999999999];",
    ".local .b8 y[1000000000];", ".shared .b8 big[50000];", "{", "}", "}}}}", "(", "[", "]", "<", "@!", "@%p1", "|",
    "||", ";", ";;", ":", "::", ",", "+", "--", "//", "/*", "*/", "\"", ".v4", ".v2", ".u8", ".s16", ".b128", ".f64",
    ".pred", ".sync", ".aligned", ".x1", ".trans", ".loc 9 9 9", ".loc 1 2 3, function_name $L1, inlined_at 1 2 3",
    ".entry f()", ".func", ".version 8.3", ".maxntid 1, 1, 1", ".reqntid 64, 1, 1", ".section .debug {",
    "bar.sync 15;", "bar.sync %r1, %r2;", "trap;", "exit;", "ret;", "mov.u32 %r1, %r1;", "ld.global.u32 %r1, [%rd1];",
    "st.shared.v4.u32 [%r1], {%r1, %r2, %r3, %r4};", "cp.async.wait_group 7;", "mma", "div.s32", "rem.s64",
    "cvt.rn.f32.s64", "redux.sync.add.s32 %r1, %r2, -1;", "\xff", "\x01", "\t", "\r\n"
};
/* clang-format on */

static uint64_t state;

/* splitmix64 */
static uint64_t next_random(uint64_t below) {
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % below;
}

/* A text that edits grow and shrink within INPUT_BYTES. */
typedef struct input {
    char bytes[INPUT_BYTES];
    size_t size;
} input;

static void replace(input *text, size_t at, size_t removed, const char *with, size_t length) {
    if (text->size - removed + length > INPUT_BYTES) {
        return;
    }
    memmove(text->bytes + at + length, text->bytes + at + removed, text->size - at - removed);
    memcpy(text->bytes + at, with, length);
    text->size += length - removed;
}

/* The start of the line that holds a byte, and its length with the line break. */
static size_t line_at(const input *text, size_t at, size_t *length) {
    size_t begin = at, end = at;
    while (begin && text->bytes[begin - 1] != '\n') {
        begin--;
    }
    while (end < text->size && text->bytes[end] != '\n') {
        end++;
    }
    *length = end - begin + (end < text->size);
    return begin;
}

static void edit(input *text) {
    size_t at = (size_t)next_random(text->size + 1), rest = text->size - at, length, other_length;
    const char *token = tokens[next_random(sizeof tokens / sizeof tokens[0])];
    char copy[4096];
    switch (next_random(9)) {
    case 0:
        if (rest) {
            text->bytes[at] = (char)next_random(256);
        }
        break;
    case 1:
        replace(text, at, (size_t)next_random(16) % (rest + 1), "", 0);
        break;
    case 2: /* a range once more, somewhere else */
        length = rest < 64 ? rest : 64;
        memcpy(copy, text->bytes + at, length);
        replace(text, (size_t)next_random(text->size + 1), 0, copy, length);
        break;
    case 3:
        replace(text, at, 0, token, strlen(token));
        break;
    case 4: /* a token instead of a word */
        for (length = 0; length < rest && strchr("%.$_", text->bytes[at + length]) == NULL && length < 12; length++) {
        }
        replace(text, at, length, token, strlen(token));
        break;
    case 5: /* without a line */
        at = line_at(text, at, &length);
        replace(text, at, length, "", 0);
        break;
    case 6: /* a line instead of another */
        at = line_at(text, at, &length);
        if (length <= sizeof copy) {
            memcpy(copy, text->bytes + at, length);
            size_t other = line_at(text, (size_t)next_random(text->size + 1), &other_length);
            replace(text, other, next_random(2) ? other_length : 0, copy, length);
        }
        break;
    case 7:
        if (next_random(8) == 0) {
            text->size = at;
        }
        break;
    default: /* a digit */
        for (size_t i = at; i < text->size; i++) {
            if (text->bytes[i] >= '0' && text->bytes[i] <= '9') {
                text->bytes[i] = (char)('0' + next_random(10));
                break;
            }
        }
    }
}

static const char *problem; /* what is wrong with the input at hand */

static void require(bool right, const char *what) {
    if (!right) {
        problem = what;
    }
}

/* An error is one sentence in one line, about a line of the text. */
static void check_error(const emu_error *error, const input *text) {
    int lines = 1;
    for (size_t i = 0; i < text->size; i++) {
        lines += text->bytes[i] == '\n';
    }
    const char *end = memchr(error->text, 0, sizeof error->text);
    require(end != NULL && end != error->text, "the error has no text");
    require(end == NULL || memchr(error->text, '\n', (size_t)(end - error->text)) == NULL, "the error has two lines");
    require(error->line >= 0 && error->line <= lines + 1, "the error names a line that does not exist");
}

static void run_entry(const emu_module *module, int index, const input *text) {
    const emu_entry_info *info = emu_entry(module, index);
    emu_device *device = emu_device_new();
    if (!device || info->param_bytes > 4096) {
        emu_device_free(device);
        return;
    }
    uint64_t params[512] = {0};
    uint64_t data = emu_alloc(device, "data", 4096, next_random(2) ? EMU_BUFFER : EMU_OUTPUT);
    for (size_t i = 0; i < info->param_bytes / 8; i++) {
        params[i] = next_random(4) ? data : next_random(4096);
    }
    static const uint32_t blocks[] = {32, 64, 1, 33, 96};
    emu_launch launch = {.entry = index,
                         .grid = {1 + (uint32_t)next_random(2), 1, 1},
                         .block = {blocks[next_random(5)], 1, 1},
                         .dynamic_shared = next_random(2) ? 2048 : 0,
                         .params = params,
                         .param_bytes = info->param_bytes,
                         .checks = next_random(4) != 0,
                         .schedule = next_random(3),
                         .threads = 1,
                         .step_limit = 2000};
    emu_error error = {0};
    emu_status status = emu_run(device, module, &launch, &error);
    size_t count = 0;
    const emu_finding *findings = emu_findings(device, &count);
    if (status == EMU_REFUSED) {
        check_error(&error, text);
    } else {
        require((status == EMU_OK) == (count == 0), "status and findings disagree");
    }
    for (size_t i = 0; i < count; i++) {
        require(findings[i].message && findings[i].message[0] && findings[i].count > 0, "a finding says nothing");
    }
    emu_device_free(device);
}

/* The input of a number: the same bytes on every machine. */
static void make_input(uint64_t number, input *text) {
    const struct code_image *image = image_find(fl_images, fl_image_count, "ptx");
    size_t seed_count = sizeof seeds / sizeof seeds[0];
    state = number * 0x2545f4914f6cdd1d + 1;
    size_t which = (size_t)next_random(seed_count * 8 + 1);
    if (which == seed_count * 8) { /* part of a real kernel */
        size_t bytes = image->size < INPUT_BYTES / 2 ? (size_t)image->size : INPUT_BYTES / 2;
        size_t start = next_random(2) ? 0 : (size_t)next_random(image->size - bytes + 1);
        text->size = bytes;
        memcpy(text->bytes, image->bytes + start, bytes);
    } else {
        const char *seed = seeds[which % seed_count];
        text->size = strlen(seed);
        memcpy(text->bytes, seed, text->size);
    }
    for (uint64_t edits = next_random(6); edits; edits--) {
        edit(text);
    }
}

/* Loads and runs one input; false when it breaks a promise of emu.h. */
static bool try_input(uint64_t number, bool *loaded) {
    static input text;
    make_input(number, &text);
    problem = NULL;
    alarm(HANG_SECONDS);
    char *exact = malloc(text.size ? text.size : 1); /* exactly as large, so that the sanitizer sees a read past it */
    memcpy(exact, text.bytes, text.size);
    emu_error error = {0};
    emu_module *module = emu_load(exact, text.size, &error);
    *loaded = module != NULL;
    if (!module) {
        check_error(&error, &text);
    }
    for (int i = 0; module && i < emu_entry_count(module) && i < 2; i++) {
        run_entry(module, i, &text);
    }
    emu_unload(module);
    free(exact);
    alarm(0);
    if (problem) {
        printf("# input %" PRIu64 ": %s\n", number, problem);
    }
    return problem == NULL;
}

/* Tries a block of inputs; counts those that load. */
static bool try_block(uint64_t first, uint64_t count, uint64_t *loaded) {
    bool right = true;
    printf("# inputs from %" PRIu64 "\n", first);
    fflush(stdout);
    for (uint64_t i = first; i < first + count; i++) {
        bool loads;
        right = try_input(i, &loads) && right;
        *loaded += loads;
    }
    return right;
}

static int report(int number, bool right, const char *text) {
    printf("%sok %d - %s\n", right ? "" : "not ", number, text);
    return !right;
}

int main(int argc, char **argv) {
    uint64_t loaded = 0;
    if (argc > 1) {
        uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
        return !try_block(strtoull(argv[1], NULL, 0), count, &loaded);
    }
    const char *text = getenv("SECONDS_TO_FUZZ");
    char *rest = NULL;
    long seconds = text ? strtol(text, &rest, 10) : 0;
    if (text && (rest == text || *rest || seconds < 0)) {
        fprintf(stderr, "SECONDS_TO_FUZZ='%s': should be a number of seconds\n", text);
        return 2;
    }
    time_t end = time(NULL) + seconds;
    uint64_t block = 0;
    bool right = true;
    int failures = 0;
    for (; block < BLOCKS || time(NULL) < end; block++) {
        right = try_block(block * BLOCK, BLOCK, &loaded) && right;
    }
    printf("# %" PRIu64 " inputs, %" PRIu64 " of them programs\n", block * BLOCK, loaded);
    failures += report(1, right, "every input gives an error or a program that ends");
    failures += report(2, loaded > block * BLOCK / 50, "enough inputs are programs");
    failures += report(3, loaded < block * BLOCK * 9 / 10, "enough inputs are broken");
    puts("1..3");
    return failures != 0;
}
