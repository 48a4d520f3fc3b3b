/* print.c - findings, counters and the table of forms as text for people and for tools. */
#include "../emu.h"
#include "orders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A cell of a Markdown table: '|' would end it. */
static void print_cell(FILE *to, const char *text) {
    for (; *text; text++) fputs(*text == '|' ? "\\|" : (char[]){*text, 0}, to);
    fputs(" | ", to);
}

void emu_print_forms(FILE *to) {
    static const char *const bits[] = {
        [EMU_EXACT] = "exact", [EMU_RECORDED] = "recorded", [EMU_FORMULA] = "formula", [EMU_NO_BITS] = ""};
    fputs("| opcode | modifiers | operands | group | bits | note |\n|---|---|---|---|---|---|\n", to);
    const emu_form *form;
    for (size_t i = 0; (form = emu_form_at(i)); i++) {
        const char *cells[] = {form->opcode, form->modifiers, form->operands, form->group, bits[form->fidelity]};
        fputs("| ", to);
        for (int c = 0; c < 5; c++) print_cell(to, cells[c]);
        fprintf(to, "%s |\n", form->note);
    }
}

/* The shape and the types of a wgmma, or the kind of a bulk copy; without a name for other instructions. */
static emu_tally engine_of(const emu_counter *row) {
    const char *shape = strstr(row->location.ptx, "wgmma.mma_async."),
               *copy = strstr(row->location.ptx, "cp.async.bulk.");
    if (shape) {
        shape = strstr(shape, "m64");
        return (emu_tally){.name = shape, .name_bytes = (int)strcspn(shape, " \t")};
    }
    if (!copy || !row->bytes) return (emu_tally){.name = ""}; /* none, or only a commit, a wait or a prefetch */
    const bool tensor = !strncmp(copy, "cp.async.bulk.tensor.", 21), store = strstr(copy, ".global.shared::cta");
    const bool between = strstr(copy, ".shared::cluster.shared::cta");
    const char *name = between  ? "copies to shared memory of other CTAs"
                       : tensor ? (store ? "tensor copies to global memory" : "tensor copies to shared memory")
                                : (store ? "bulk copies to global memory" : "bulk copies to shared memory");
    return (emu_tally){.name = name};
}

/* The heading of a row. A source line is the innermost of the kernel's own file, not that of a wrapper in a header. */
static emu_tally heading_of(const emu_counters *counters, const emu_counter *row, emu_tally_key key) {
    const emu_location *location = &row->location;
    if (key == EMU_BY_REGION) {
        const emu_region *region = &counters->regions[row->region];
        return (emu_tally){.name = region->name, .depth = region->depth};
    }
    if (key == EMU_BY_GROUP) return (emu_tally){.name = row->group};
    if (key == EMU_BY_ENGINE) return engine_of(row);
    if (!location->own) return (emu_tally){.name = "PTX line", .line = location->ptx_line};
    const char *slash = strrchr(location->own->file, '/');
    return (emu_tally){.name = slash ? slash + 1 : location->own->file, .line = location->own->line};
}

static int by_name_and_line(const void *left, const void *right) {
    const emu_tally *a = left, *b = right;
    int bytes = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes,
        names = strncmp(a->name, b->name, (size_t)bytes);
    if (!names) names = a->name_bytes - b->name_bytes;
    return names ? names : (a->line > b->line) - (a->line < b->line);
}

static void print_tally(FILE *to, const emu_tally *tally) {
    char name[64];
    const bool file = tally->line && strchr(tally->name, '.'); /* or a PTX line */
    if (tally->line)
        snprintf(name, sizeof name, file ? "%s:%d" : "%s %d", tally->name, tally->line);
    else
        snprintf(name, sizeof name, "%.*s", tally->name_bytes, tally->name);
    fprintf(to, "%-36s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %14" PRIu64 "\n", name,
            tally->sum.executed, tally->sum.wavefronts, tally->sum.ideal, tally->sum.sectors, tally->sum.bytes);
}

emu_tally *emu_tally_counters(const emu_counters *counters, emu_tally_key key, size_t *count) {
    emu_tally *tallies = calloc(counters->count + 1, sizeof *tallies);
    *count = 0;
    for (size_t i = 0; tallies && i < counters->count; i++) {
        const emu_counter *row = &counters->rows[i];
        if (!row->executed) continue;
        emu_tally tally = heading_of(counters, row, key);
        if (!tally.name_bytes) tally.name_bytes = (int)strlen(tally.name);
        if (!tally.name_bytes) continue;
        size_t at = 0;
        while (at < *count && by_name_and_line(&tallies[at], &tally) != 0) at++;
        if (at == *count) tallies[(*count)++] = tally;
        emu_counter *sum = &tallies[at].sum;
        sum->executed += row->executed;
        sum->lanes += row->lanes;
        sum->wavefronts += row->wavefronts;
        sum->ideal += row->ideal;
        sum->sectors += row->sectors;
        sum->requests += row->requests;
        sum->bytes += row->bytes;
    }
    if (tallies && key == EMU_BY_LINE) qsort(tallies, *count, sizeof *tallies, by_name_and_line);
    return tallies;
}

static bool print_tallies(FILE *to, const emu_counters *counters, emu_tally_key key, const char *heading) {
    size_t count;
    emu_tally *tallies = emu_tally_counters(counters, key, &count);
    if (!tallies) return false;
    fprintf(to, "%-36s %12s %12s %12s %12s %14s\n", heading, "PTX instr.", "wavefronts", "ideal", "sectors", "bytes");
    for (size_t i = 0; i < count; i++) print_tally(to, &tallies[i]);
    fputc('\n', to);
    free(tallies);
    return true;
}

/* Work of the tensor cores and of TMA; nothing if a kernel uses neither. */
static bool print_engines(FILE *to, const emu_counters *counters) {
    size_t count;
    emu_tally *tallies = emu_tally_counters(counters, EMU_BY_ENGINE, &count);
    free(tallies);
    if (!tallies || !count) return tallies != NULL;
    if (!print_tallies(to, counters, EMU_BY_ENGINE, "wgmma and copies")) return false;
    fputs(
        "A wgmma counts once for each of its four warps. What wgmma and copies read and write in shared memory takes\n"
        "wavefronts, too: these are not modeled.\n\n",
        to);
    return true;
}

bool emu_print_counters(FILE *to, const emu_counters *counters) {
    fputs("PTX instructions executed by warps, modeled shared-memory wavefronts and global 32-byte sectors: counts, "
          "no times.\n\n",
          to);
    emu_tally total = {.name = "total", .name_bytes = 5, .sum = counters->total};
    bool done = print_tallies(to, counters, EMU_BY_LINE, "source line") &&
                print_tallies(to, counters, EMU_BY_REGION, "region") &&
                print_tallies(to, counters, EMU_BY_GROUP, "group") && print_engines(to, counters);
    print_tally(to, &total);
    return done;
}

void emu_write_counters(FILE *to, const emu_counters *counters) {
    fputs("ptx_line,file,line,own_file,own_line,region,group,executed,lanes,wavefronts,ideal,sectors,requests,"
          "bytes,ptx\n",
          to);
    for (size_t i = 0; i < counters->count; i++) {
        const emu_counter *row = &counters->rows[i];
        const emu_location *location = &row->location;
        const emu_frame none = {.file = ""}, inner = location->frame ? *location->frame : none,
                        own = location->own ? *location->own : none;
        fprintf(to,
                "%d,%s,%d,%s,%d,%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                ",\"%s\"\n",
                location->ptx_line, inner.file, inner.line, own.file, own.line, counters->regions[row->region].name,
                row->group, row->executed, row->lanes, row->wavefronts, row->ideal, row->sectors, row->requests,
                row->bytes, location->ptx);
    }
}

/* Append the unverified cases. */
static void add_gaps(uint32_t orders, char *out, size_t bytes) {
    static const struct {
        unsigned gap;
        const char *text;
    } gaps[] = {
        {GAP_UNCHECKED, "the checks were off"},
        {GAP_MEMORY, "flags, counters or sums in memory"},
        {GAP_POLLS, "a wait whose answer no does more than ask again"},
        {GAP_PARTED, "lanes of a warp that wait apart"},
        {GAP_RELAXED, "relaxed arrivals"},
        {GAP_LOADS, "loads that later accesses may overtake"},
        {GAP_MBARRIERS, "copies at more than 32 mbarriers"},
        {GAP_COPIES, "st.async"},
        {GAP_REGISTERS, "registers that change hands more than once"},
        {GAP_TIME, "a clock that is read"},
        {GAP_HEAP, "malloc"},
        {GAP_RACES, "races that were not looked for"},
    };
    size_t used = strlen(out);
    const char *separator = "; not covered: ";
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        if (!(orders & gaps[i].gap) || used >= bytes) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", separator, gaps[i].text);
        separator = "; ";
    }
}

const char *emu_describe_orders(uint32_t orders, char *out, size_t bytes) {
    snprintf(out, bytes, "%s", orders ? "one order seen" : "no race, no deadlock in any order");
    add_gaps(orders, out, bytes);
    return out;
}

const char *emu_describe_classes(const emu_exploration *seen, uint32_t orders, char *out, size_t bytes) {
    if (seen->left)
        snprintf(out, bytes, "%" PRIu64 " run, %" PRIu64 " left", seen->classes, seen->left);
    else if (seen->classes == 1)
        snprintf(out, bytes, "1 class");
    else
        snprintf(out, bytes, "%" PRIu64 " classes%s, all run", seen->classes, seen->by_tickets ? " of tickets" : "");
    add_gaps(orders, out, bytes);
    return out;
}

void emu_print_findings(FILE *to, const emu_device *device) {
    size_t count;
    const emu_finding *findings = emu_findings(device, &count);
    for (size_t i = 0; i < count; i++) {
        fprintf(to, "%s", findings[i].message);
        size_t length = strlen(findings[i].message);
        fputs(length && findings[i].message[length - 1] == '\n' ? "\n" : "\n\n", to);
    }
    if (count) {
        fprintf(to, "%zu finding%s:", count, count == 1 ? "" : "s");
        for (size_t i = 0; i < count; i++) {
            fprintf(to, "%s %s (%" PRIu64 " time%s)", i ? "," : "", emu_class_name(findings[i].class_),
                    findings[i].count, findings[i].count == 1 ? "" : "s");
        }
        fputc('\n', to);
    }
    if (emu_counts(device)->races_unseen)
        fputs("note: races in global memory were not all looked for, as that takes more memory or time; a launch may "
              "give it more memory (--race-memory of ptxrun)\n",
              to);
}
