/* variables.c - .global and .const variables on a device: they keep their values from launch to launch. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

bool emu_keep_variables(emu_device *device, const emu_module *module, const uint8_t *initial, uint32_t bytes) {
    uint32_t kept = device->module == module->serial ? device->variable_bytes : 0;
    if (device->variables && device->module == module->serial && bytes <= kept) return true;
    uint8_t *all = calloc(1, (size_t)bytes + 16);
    if (!all) return false;
    if (kept) memcpy(all, device->variables, kept);
    if (bytes > kept) memcpy(all + kept, initial + kept, bytes - kept);
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
    return emu_keep_variables(device, module, initial, bytes);
}
