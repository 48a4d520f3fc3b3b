/* load.c - emu_load, emu_decode and emu_unload: a text goes through the parser, which has each statement decoded at
 * once, and then through the analysis of its control flow. */
#include "builder.h"
#include "flow.h"
#include "forms.h"
#include "loader.h"
#include "parser.h"

#include <string.h>

/* From compute capability 9.0 on the first bytes of shared memory belong to the driver. */
enum { FIRST_WITH_RESERVED_SHARED = 90, RESERVED_SHARED = 1024 };

static bool little_endian(void) {
    uint16_t probe = 1;
    uint8_t first;
    memcpy(&first, &probe, 1);
    return first == 1;
}

static bool read_module(loader *load, const char *ptx, size_t bytes) {
    if (setjmp(load->escape)) return false;
    emu_index_forms(load);
    emu_parse_module(load, ptx, bytes);
    load->module.shared_base = load->architecture >= FIRST_WITH_RESERVED_SHARED ? RESERVED_SHARED : 0;
    return true;
}

emu_module *emu_load_at(uint32_t buffer, unsigned architecture, const char *ptx, size_t bytes, emu_error *error) {
    *error = (emu_error){0};
    if (!little_endian()) {
        snprintf(error->text, sizeof error->text, "the emulator needs a little-endian host");
        return NULL;
    }
    loader *load = emu_loader_new();
    if (!load) {
        snprintf(error->text, sizeof error->text, "out of memory");
        return NULL;
    }
    static _Atomic uint64_t modules;
    load->module.serial = ++modules;
    load->module.buffer = buffer;
    load->architecture = architecture;
    load->error = error;
    if (read_module(load, ptx, bytes)) return &load->module;
    emu_loader_free(load);
    return NULL;
}

emu_module *emu_load(const char *ptx, size_t bytes, emu_error *error) {
    return emu_load_at(0, 0, ptx, bytes, error);
}

const uint8_t *emu_initial_variables(const emu_module *module, uint32_t *bytes) {
    pthread_mutex_lock(&module->load->lock); /* another thread may decode a body that has variables */
    const uint8_t *initial = module->variables;
    *bytes = module->variable_bytes;
    pthread_mutex_unlock(&module->load->lock);
    return initial;
}

bool emu_variable_at(const emu_module *module, size_t index, emu_variable *variable) {
    bool found = false;
    pthread_mutex_lock(&module->load->lock);
    for (size_t i = 0; i < module->symbol_count && !found; i++) {
        const symbol *each = &module->symbols[i];
        if (each->space != SPACE_GLOBAL && each->space != SPACE_CONST) continue;
        found = !index--;
        *variable = (emu_variable){each->name, each->type, emu_symbol_address(module, each), each->bytes};
    }
    pthread_mutex_unlock(&module->load->lock);
    return found;
}

static bool read_entry(loader *load, entry *code) {
    if (setjmp(load->escape)) return false;
    emu_parse_entry_body(load, code);
    emu_analyse_flow(load, code);
    return true;
}

bool emu_decode(const emu_module *module, int index, emu_error *error) {
    *error = (emu_error){0};
    if (!emu_entry(module, index)) {
        snprintf(error->text, sizeof error->text, "there is no entry %d: the module has %zu", index,
                 module->entry_count);
        return false;
    }
    loader *load = module->load;
    entry *code = &module->entries[index];
    pthread_mutex_lock(&load->lock);
    if (code->state == ENTRY_UNREAD) {
        load->error = &code->refusal;
        code->state = read_entry(load, code) ? ENTRY_READY : ENTRY_REFUSED;
    }
    *error = code->refusal;
    bool ready = code->state == ENTRY_READY;
    pthread_mutex_unlock(&load->lock);
    return ready;
}

void emu_unload(emu_module *module) {
    if (module) emu_loader_free(module->load);
}
