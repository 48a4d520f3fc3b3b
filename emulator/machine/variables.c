/* variables.c - .global and .const variables on a device: they keep their values from launch to launch. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

/* Initial values for variables after the existing ones, of a body that was decoded since. */
static uint8_t *longer(const uint8_t *old, uint32_t kept, const uint8_t *initial, uint32_t bytes) {
    uint8_t *all = calloc(1, (size_t)bytes + 16);
    if (!all) return NULL;
    if (kept) memcpy(all, old, kept);
    if (bytes > kept) memcpy(all + kept, initial + kept, bytes - kept);
    return all;
}

static bool keep_apart(buffer *own, const uint8_t *initial, uint32_t bytes) {
    if (bytes <= own->size) return true;
    uint8_t *all = longer(own->bytes, (uint32_t)own->size, initial, bytes);
    if (!all) return false;
    free(own->block);
    own->block = own->bytes = all;
    own->size = bytes;
    if (own->touches) return emu_watch_buffer(own);
    return true;
}

bool emu_keep_variables(emu_device *device, const emu_module *module, const uint8_t *initial, uint32_t bytes) {
    if (module->buffer) return keep_apart(&device->buffers[module->buffer - 1], initial, bytes);
    uint32_t kept = device->module == module->serial ? device->variable_bytes : 0;
    if (device->variables && device->module == module->serial && bytes <= kept) return true;
    uint8_t *all = longer(device->variables, kept, initial, bytes);
    if (!all) return false;
    free(device->variables);
    device->variables = all;
    device->variable_bytes = bytes;
    device->module = module->serial;
    return true;
}

bool emu_reset_variables(emu_device *device, const emu_module *module) {
    uint32_t bytes;
    const uint8_t *initial = emu_initial_variables(module, &bytes);
    device->module = 0;
    if (module->buffer) device->buffers[module->buffer - 1].size = 0;
    return emu_keep_variables(device, module, initial, bytes);
}

emu_module *emu_load_on(emu_device *device, const char *ptx, size_t bytes, emu_error *error) {
    const uint64_t address = emu_alloc(device, "variables of a module", 1, EMU_BUFFER);
    if (!address) {
        *error = (emu_error){.text = "out of memory"};
        return NULL;
    }
    const uint32_t number = (uint32_t)(address >> BUFFER_SHIFT);
    emu_module *module = emu_load_at(number, device->architecture, ptx, bytes, error);
    device->buffers[number - 1].size = 0;
    if (module && emu_reset_variables(device, module)) return module;
    if (module) *error = (emu_error){.text = "out of memory"};
    emu_unload(module);
    emu_free(device, address);
    return NULL;
}

bool emu_find_variable(emu_device *device, const emu_module *module, const char *name, emu_variable *variable) {
    for (size_t i = 0; emu_variable_at(module, i, variable); i++) {
        uint32_t bytes;
        if (strcmp(variable->name, name) != 0) continue;
        const uint8_t *initial = emu_initial_variables(module, &bytes);
        return emu_keep_variables(device, module, initial, bytes);
    }
    return false;
}

void emu_unload_from(emu_device *device, emu_module *module) {
    if (module) emu_free(device, ((uint64_t)module->buffer << BUFFER_SHIFT) + BUFFER_START);
    emu_unload(module);
}
