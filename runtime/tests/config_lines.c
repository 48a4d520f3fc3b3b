/* config_lines.c - what config.c makes of each line of standard input, for tests that ask Python the same.
 *
 *     printf '%s\n' "(FP16, 128, 64, 64, 4): load_0_0_0_tiles" _Z13flash_forward... | config_lines
 *
 * Prints `ok<TAB>short form<TAB>fields as JSON` or `bad<TAB>message`. A line that begins with _Z is a symbol.
 */
#include "runtime/config.h"

#include <stdio.h>
#include <string.h>

static enum status read_config(const char *text, KernelConfig *config, struct failure *failure) {
    if (strncmp(text, "_Z", 2) != 0) return config_parse(text, config, failure);
    if (config_from_symbol(text, strlen(text), config)) return STATUS_OK;
    return fail(failure, STATUS_USAGE, "'%s': not the symbol of a flash_forward instance", text);
}

int main(void) {
    char line[4000];
    while (fgets(line, sizeof line, stdin)) {
        KernelConfig config;
        struct failure failure;
        char text[CONFIG_TEXT_SIZE];
        line[strcspn(line, "\n")] = 0;
        if (read_config(line, &config, &failure)) {
            printf("bad\t%s\n", failure.text);
            continue;
        }
        struct json json = {0};
        config_json(&json, NULL, &config);
        printf("ok\t%s\t%s\n", config_format(&config, text), json.text);
        json_free(&json);
    }
    return 0;
}
