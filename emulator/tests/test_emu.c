/* test_emu.c - the promises of emu.h: loading, buffers, launches, findings and counters through the C API. */
#include "common/tests/tap.h"
#include "emulator/emu.h"

#include <string.h>

enum { THREADS = 64, CTAS = 6, COUNT = THREADS * CTAS };

static const char program[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".shared .align 8 .b8 cells[512];\n"
    ".visible .entry scale(.param .u8 tag, .param .u64 data, .param .u16 low, .param .align 8 .b8 pair[12])\n"
    ".maxntid 64, 1, 1\n{\n"
    ".reg .b32 %i, %t, %c, %s, %v, %n;\n.reg .b64 %p;\n"
    "mov.u32 %t, %tid.x;\nmov.u32 %c, %ctaid.x;\nmad.lo.u32 %i, %c, 64, %t;\n"
    "mov.u32 %s, cells;\nmad.lo.u32 %s, %t, 4, %s;\nst.shared.u32 [%s], %i;\nbar.sync 0;\nxor.b32 %s, %s, 128;\n"
    "ld.shared.u32 %v, [%s];\nld.param.u32 %n, [pair+4];\nmul.lo.u32 %v, %v, %n;\n"
    "ld.param.u64 %p, [data];\nmad.wide.u32 %p, %i, 4, %p;\nst.global.u32 [%p], %v;\nret;\n}\n"
    ".entry idle()\n{\nret;\n}\n";

/* The parameter block of scale(), as emu_entry_info lays it out. */
typedef struct scale_params {
    uint8_t tag;
    uint64_t data;
    uint16_t low;
    uint32_t pair[3] __attribute__((aligned(8)));
} scale_params;

static emu_launch launch_of(const scale_params *params) {
    emu_launch launch = {.grid = {CTAS, 1, 1},
                         .block = {THREADS, 1, 1},
                         .params = params,
                         .param_bytes = offsetof(scale_params, pair) + 12,
                         .checks = true};
    return launch;
}

static void test_loading(void) {
    emu_error error = {0};
    const char broken[] = ".version 8.3\n.target sm_80\n.address_size 64\n.entry f()\n{\nfrobnicate.b32 1;\n}\n"
                          ".entry g()\n{\n/* } */ .pragma \"}\";\n{ bar.sync 0; } // }\nret;\n}\n";
    emu_module *module = emu_load(broken, sizeof broken - 1, &error);
    ok(module && strcmp(emu_entry(module, 0)->name, "f") == 0, "a body waits until it is asked for");
    ok(!emu_decode(module, 0, &error), "then an unknown opcode is refused");
    ok(error.line == 6 && strstr(error.text, "frobnicate"), "by line and name: %d: %s", error.line, error.text);
    const emu_error first = error;
    ok(!emu_decode(module, 0, &error) && error.line == first.line && !strcmp(error.text, first.text),
       "and so each time it is asked for");
    ok(emu_decode(module, 1, &error) && error.line == 0, "the entry after it is not: %s", error.text);
    ok(emu_entry(module, 1)->instructions == 2, "it has %u instructions", emu_entry(module, 1)->instructions);
    ok(!emu_decode(module, 2, &error) && strstr(error.text, "no entry 2"), "none beyond them: %s", error.text);
    ok(!emu_decode(module, -1, &error) && strstr(error.text, "no entry -1"), "nor before: %s", error.text);
    emu_unload(module);
    const char open[] = ".version 8.3\n.target sm_80\n.address_size 64\n.entry f()\n{\n{ ret; // }\n/* } */}\n";
    ok(!emu_load(open, sizeof open - 1, &error), "a body without an end is refused at once: %s", error.text);
    const char late[] = ".version 8.3\n.target sm_80\n.address_size 64\n.entry f()\n{\n.reg .b64 %rd<2>;\n"
                        "mov.u64 %rd1, later;\nret;\n}\n.global .u32 later;\n";
    module = emu_load(late, sizeof late - 1, &error);
    ok(module && !emu_decode(module, 0, &error) && error.line == 7, "a body sees the declarations before it: %s",
       error.text);
    emu_unload(module);
    error = (emu_error){0};
    ok(emu_load("", 0, &error) == NULL && error.text[0], "an empty text is refused: %s", error.text);
    ok(emu_load("\0\0\0", 3, &error) == NULL && error.text[0], "so are zero bytes: %s", error.text);
    emu_unload(NULL);
    emu_device_free(NULL);
}

#define HEAD ".version 8.3\n.target sm_80\n.address_size 64\n"

/* Bodies are skipped 16 bytes at a time: what hides a brace may be anywhere in those, and lines are counted there. */
static void test_skipping(void) {
    static const char blanks[] = "                                        ";
    static const char skipped[] = "{ ret; // } \\\n/* } */\n}\n.pragma \"}\";\n{ / {}}\n}\n";
    bool right = true;
    for (int pad = 0; pad < 40; pad++) {
        char text[512];
        emu_error error;
        snprintf(text, sizeof text, HEAD ".entry f()\n{\n%.*s%s.entry g()\n{\n%.*swrong;\n}\n", pad, blanks, skipped,
                 pad, blanks);
        emu_module *module = emu_load(text, strlen(text), &error);
        right = right && module && emu_entry_count(module) == 2 && !emu_decode(module, 1, &error) && error.line == 14 &&
                strstr(error.text, "wrong");
        emu_unload(module);
    }
    ok(right, "a body is skipped with its comments and strings wherever they are, and its lines are counted");
    emu_error error = {0};
    const char cut[] = HEAD ".entry f()\n{\nret;\n}\n.vers";
    ok(!emu_load(cut, sizeof cut - 1, &error) && error.line == 8 && strstr(error.text, "within a word"),
       "a text that ends within a word is refused: %d: %s", error.line, error.text);
}

/* Runs entry 0 with one warp and a buffer of words as its parameter; the words, which the device keeps. */
static const uint32_t *run_words(emu_device *device, const char *text, emu_module **module) {
    emu_error error = {0};
    uint64_t data = emu_alloc(device, "data", 64, EMU_BUFFER);
    emu_launch launch = {.grid = {1, 1, 1},
                         .block = {1, 1, 1},
                         .params = &data,
                         .param_bytes = 8,
                         .dynamic_shared = 256,
                         .checks = true};
    *module = emu_load(text, strlen(text), &error);
    emu_status status = *module ? emu_run(device, *module, &launch, &error) : EMU_REFUSED;
    ok(status == EMU_OK, "the program runs: %d: %s", error.line, error.text);
    return emu_host_bytes(device, data);
}

/* A line of .loc means another location once the line it was inlined at was inlined elsewhere. */
static void test_repeated_locations(void) {
#define INLINED(line)                                                                                                  \
    ".loc 1 " #line " 1\n.loc 1 20 1, function_name $L0, inlined_at 1 " #line " 1\n"                                   \
    ".loc 1 5 1, function_name $L1, inlined_at 1 20 1\nmov.u32 %r, 1;\n"
    static const char text[] = HEAD ".file 1 \"a.cu\"\n.entry f(.param .u64 data)\n{\n.reg .b32 %r;\n" INLINED(50)
        INLINED(60) INLINED(50) ".loc 1 20 1, function_name $L0, inlined_at 1 60 1\nmov.u32 %r, 2;\nret;\n}\n";
#undef INLINED
    static const int lines[] = {5, 5, 5, 20}, outermost[] = {50, 60, 50, 60}, depths[] = {3, 3, 3, 2};
    emu_device *device = emu_device_new();
    emu_module *module;
    run_words(device, text, &module);
    for (int i = 0; i < 4; i++) {
        const emu_location *location = &emu_counts(device)->rows[i].location;
        const emu_frame *frame = location->frame;
        int depth = 1;
        for (; frame->caller; frame = frame->caller) depth++;
        ok(location->frame->line == lines[i] && frame->line == outermost[i] && depth == depths[i],
           "instruction %d is of line %d, inlined at line %d, %d deep", i, location->frame->line, frame->line, depth);
        ok(location->own == location->frame, "all of its frames are of one file");
    }
    emu_device_free(device);
    emu_unload(module);
}

static void test_entries(const emu_module *module) {
    ok(emu_entry_count(module) == 2, "both entries are there");
    ok(emu_entry(module, -1) == NULL && emu_entry(module, 2) == NULL, "no entry beyond them");
    const emu_entry_info *info = emu_entry(module, 0);
    emu_error error;
    ok(emu_decode(module, 0, &error), "the first is decoded: %s", error.text);
    ok(strcmp(info->name, "scale") == 0 && info->params == 4, "the first is scale() with its parameters");
    static const uint32_t offsets[] = {0, 8, 16, 24}, sizes[] = {1, 8, 2, 12};
    ok(memcmp(info->param_offsets, offsets, sizeof offsets) == 0, "parameters have their natural alignment");
    ok(memcmp(info->param_sizes, sizes, sizeof sizes) == 0 && info->param_bytes == 36, "and have their sizes");
    ok(info->shared_bytes == 512 && info->max_threads == 64, "static shared memory and .maxntid are read");
    ok(info->instructions == 15, "%u instructions are counted", info->instructions);
}

static void test_buffers(void) {
    emu_device *device = emu_device_new();
    uint64_t first = emu_alloc(device, "first", 1000, EMU_BUFFER), second = emu_alloc(device, "second", 24, EMU_OUTPUT);
    unsigned char *bytes = emu_host_bytes(device, first);
    bool zero = true;
    for (int i = 0; i < 1000; i++) {
        zero = zero && bytes[i] == 0;
    }
    ok(first && second && first % 256 == 0 && second % 256 == 0, "buffers are aligned to 256 bytes");
    ok(zero, "a new buffer holds zeros");
    ok(emu_host_bytes(device, first + 999) == bytes + 999, "host bytes are found inside of a buffer");
    ok(!emu_host_bytes(device, first + 1000) && !emu_host_bytes(device, first - 1) && !emu_host_bytes(device, 0),
       "and nowhere else");
    ok(emu_alloc(device, "none", 0, EMU_BUFFER) == 0, "an empty buffer is refused");
    ok(emu_alloc(device, "huge", UINT64_MAX, EMU_BUFFER) == 0, "so is one that cannot be");
    emu_device_free(device);
}

static void test_refused_launches(const emu_module *module) {
    emu_device *device = emu_device_new();
    scale_params params = {.data = emu_alloc(device, "data", COUNT * 4, EMU_OUTPUT), .pair = {0, 3, 0}};
    const emu_launch good = launch_of(&params);
    emu_launch bad[4] = {good, good, good, good};
    static const char *const names[] = {"entry 2", "entry -1", "other bytes of parameters",
                                        "more threads than .maxntid"};
    bad[0].entry = 2;
    bad[1].entry = -1;
    bad[2].param_bytes = 35;
    bad[3].block[0] = 65;
    for (int i = 0; i < 4; i++) {
        emu_error error = {0};
        emu_status status = emu_run(device, module, &bad[i], &error);
        ok(status == EMU_REFUSED && error.text[0], "%s: %s", names[i], error.text);
    }
    emu_error error = {0};
    ok(emu_run(device, module, &good, &error) == EMU_OK, "the right launch runs after them");
    emu_device_free(device);
}

static bool results_are_right(emu_device *device, uint64_t data) {
    const uint32_t *values = emu_host_bytes(device, data);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (values[i] != (i ^ 32) * 3) {
            return false;
        }
    }
    return true;
}

static void test_launches(const emu_module *module) {
    emu_counters reference = {0};
    emu_device *devices[4];
    for (int i = 0; i < 4; i++) {
        emu_device *device = devices[i] = emu_device_new();
        emu_error error = {0};
        scale_params params = {.data = emu_alloc(device, "data", COUNT * 4, EMU_OUTPUT), .pair = {0, 3, 0}};
        emu_launch launch = launch_of(&params);
        launch.threads = i;
        launch.schedule = (uint64_t)i;
        emu_status status = emu_run(device, module, &launch, &error);
        size_t findings = 1;
        (void)emu_findings(device, &findings);
        ok(status == EMU_OK && findings == 0, "%d host threads, schedule %d: nothing is found", i, i);
        ok(results_are_right(device, params.data), "%d host threads: results are right", i);
        const emu_counters *counts = emu_counts(device);
        if (i == 0) {
            reference = *counts;
        }
        const emu_counter *a = &counts->total, *b = &reference.total;
        ok(a->executed == b->executed && a->lanes == b->lanes && a->wavefronts == b->wavefronts &&
               a->ideal == b->ideal && a->sectors == b->sectors && a->requests == b->requests && a->bytes == b->bytes,
           "%d host threads: the same counters", i);
    }
    ok(reference.count == 15 && reference.total.executed == 15 * 2 * CTAS, "each instruction ran once in each warp");
    ok(reference.total.wavefronts == 2 * 2 * CTAS && reference.total.ideal == 2 * 2 * CTAS,
       "shared memory has no conflict");
    const emu_counter *store = &reference.rows[13];
    ok(strcmp(store->location.ptx, "st.global.u32 [%p], %v;") == 0 && store->requests == 2 * CTAS, "%s: %d requests",
       store->location.ptx, (int)store->requests);
    ok(store->sectors == 4 * 2 * CTAS && reference.total.sectors == store->sectors, "of 4 sectors each");
    ok(store->lanes == COUNT && store->bytes == COUNT * 4, "of 4 bytes for each lane");
    for (int i = 0; i < 4; i++) {
        emu_device_free(devices[i]);
    }
}

static void test_findings(const emu_module *module) {
    emu_device *device = emu_device_new();
    emu_error error = {0};
    scale_params params = {.data = emu_alloc(device, "too small", COUNT * 4 - 4, EMU_OUTPUT), .pair = {0, 3, 0}};
    emu_launch launch = launch_of(&params);
    ok(emu_run(device, module, &launch, &error) == EMU_FINDINGS, "a store past the buffer is found");
    size_t count = 0;
    const emu_finding *finding = emu_findings(device, &count);
    ok(count == 1 && finding->class_ == EMU_OUT_OF_BOUNDS && finding->count == 1, "once, as out-of-bounds");
    ok(finding->cta[0] == CTAS - 1 && finding->warp == 1 && finding->lane == 31, "by its CTA, warp and lane");
    ok(finding->address == params.data + COUNT * 4 - 4, "with the address");
    ok(strstr(finding->here.ptx, "st.global.u32") && finding->here.ptx_line == 23, "and the instruction: line %d, %s",
       finding->here.ptx_line, finding->here.ptx);
    ok(strstr(finding->message, "too small") != NULL, "the message names the buffer");
    params.data = emu_alloc(device, "right", COUNT * 4, EMU_OUTPUT);
    emu_status status = emu_run(device, module, &launch, &error);
    (void)emu_findings(device, &count);
    ok(status == EMU_FINDINGS && count == 1, "an output that another launch does not write is reported");
    emu_device_free(device);
}

/* Variables keep their values from launch to launch, and have their initial ones again when that is asked for. */
static void test_variables(void) {
    static const char text[] =
        ".version 8.3\n.target sm_80\n.address_size 64\n.global .u32 count = 5;\n.const .align 8 .f64 unit = 1.5;\n"
        ".entry add()\n{\n.reg .b32 %r<2>;\n.global .b8 inner[3] = {7, 8, 9};\natom.global.add.u32 %r1, [count], 2;\n"
        "ret;\n}\n";
    emu_error error;
    emu_module *module = emu_load(text, sizeof text - 1, &error);
    emu_device *device = emu_device_new();
    emu_variable count, unit, inner;
    ok(module && emu_variable_at(module, 0, &count) && !strcmp(count.name, "count") && !strcmp(count.type, "u32"),
       "a variable has a name and a type");
    ok(emu_variable_at(module, 1, &unit) && unit.bytes == 8 && !emu_variable_at(module, 2, &inner),
       "and bytes; those of a body wait for it");
    ok(!emu_host_bytes(device, count.address), "no variables are on a new device");
    ok(emu_reset_variables(device, module) && *(double *)emu_host_bytes(device, unit.address) == 1.5,
       "they have their initial values");
    *(uint32_t *)emu_host_bytes(device, count.address) = 100;
    emu_launch launch = {.grid = {3, 1, 1}, .block = {1, 1, 1}, .checks = true};
    ok(emu_run(device, module, &launch, &error) == EMU_OK, "a launch: %s", error.text);
    ok(emu_run(device, module, &launch, &error) == EMU_OK, "and another: %s", error.text);
    uint32_t *value = emu_host_bytes(device, count.address);
    ok(*value == 112, "keep what the host and kernels wrote: %u", *value);
    ok(emu_variable_at(module, 2, &inner) && ((uint8_t *)emu_host_bytes(device, inner.address))[1] == 8,
       "a decoded body has brought its own");
    ok(!emu_host_bytes(device, inner.address + inner.bytes), "nothing follows the last");
    ok(emu_reset_variables(device, module) && *(uint32_t *)emu_host_bytes(device, count.address) == 5,
       "and back to the initial values");
    emu_module *other = emu_load(text, sizeof text - 1, &error);
    *(uint32_t *)emu_host_bytes(device, count.address) = 100;
    ok(emu_run(device, other, &launch, &error) == EMU_OK && *(uint32_t *)emu_host_bytes(device, count.address) == 11,
       "another module has variables of its own");
    emu_device_free(device);
    emu_unload(module);
    emu_unload(other);
}

static void test_names(void) {
    bool distinct = true;
    for (int i = 0; i < EMU_CLASSES; i++) {
        for (int j = 0; j < i; j++) {
            distinct = distinct && strcmp(emu_class_name((emu_class)i), emu_class_name((emu_class)j)) != 0;
        }
    }
    ok(distinct, "every class of findings has its name");
    size_t rows = 0;
    bool complete = true;
    for (const emu_form *form; (form = emu_form_at(rows)); rows++) {
        complete = complete && form->opcode[0] && form->modifiers && form->operands && form->group[0] && form->note;
    }
    ok(complete && rows > 50, "the table of forms has %zu complete rows", rows);
}

int main(void) {
    emu_error error = {0};
    emu_module *module = emu_load(program, sizeof program - 1, &error);
    ok(module != NULL, "the program loads: %s", error.text);
    if (module) {
        test_loading();
        test_skipping();
        test_repeated_locations();
        test_entries(module);
        test_buffers();
        test_refused_launches(module);
        test_launches(module);
        test_findings(module);
        test_variables();
        test_names();
    }
    emu_unload(module);
    return tap_done();
}
