# The emulator and a part of the harness in WebAssembly, for pages:
#
#     emulator/{ptx,machine,check,explore,wasm}, runtime/, harness/browser ─ zig cc ─► build/wasm/emulator.wasm
#     the same, natively ─ cc ─► build/wasm/page.so, which tests compare it with

WASM := $(BUILD)/wasm
# watch.c replaces trace.c and events.c: it follows a launch instead of printing it.
WASM_C := $(filter-out emulator/machine/trace.c emulator/machine/events.c, \
		$(wildcard $(addsuffix /*.c,$(addprefix emulator/,ptx machine check explore wasm)))) \
	$(patsubst %,runtime/%.c,abilities config json launch parameters status tensor_maps) \
	harness/problem.c harness/inputs.c harness/philox.c harness/browser/problem.c
WASM_FLAGS := -target wasm32-wasi -std=c11 -D_GNU_SOURCE -Os -msimd128 -mnontrapping-fptoint -mbulk-memory \
	-fvisibility=hidden -Wall -Wextra -Wno-psabi -Wno-unknown-pragmas -Werror -mexec-model=reactor
WASM_LINK := -Wl,--strip-all,-z,stack-size=1048576,--export=__stack_pointer
$(eval $(call stamp,$(WASM)/flags,$$(WASM_FLAGS) $$(WASM_LINK)))

# Pointers have 32 bits there. In these copies each of the parameters has a second name, X_address, of 64 bits.
WASM_COMMON := $(patsubst %,$(WASM)/include/%,$(wildcard common/*.h))
$(WASM_COMMON): $(WASM)/include/%: % make/wasm.mk
	@mkdir -p $(@D)
	@$(parts) sed -E -e '/^ /s/^( *)((const )?[a-z0-9_]+) \*([A-Za-z_]+), \*([A-Za-z_]+);/\1\2 *\4; \2 *\5;/' \
		-e '/^ /s/((const )?[a-z0-9_]+) \*([A-Za-z_]+);/union { \1 *\3; uint64_t \3_address; };/g' \
		$< >$(part); $(whole)

WASM_FILES := $(WASM)/emulator.wasm $(WASM)/page.so
WASM_H := $(wildcard emulator/*.h $(addsuffix /*.h,$(addprefix emulator/,ptx machine check explore wasm wasm/include)) \
	runtime/*.h harness/*.h)
$(WASM)/emulator.wasm: $(WASM_C) $(WASM_H) $(WASM_COMMON) $(WASM)/flags | $(ZIG)/wasm.installed
	$(call say,WASM,$@)$(parts) ZIG_LOCAL_CACHE_DIR=$(WASM)/cache ZIG_GLOBAL_CACHE_DIR=$(WASM)/cache \
		$(ZIG_CC) $(WASM_FLAGS) -Iemulator/wasm/include -I$(WASM)/include -I. \
		$(WASM_LINK) \
		$(filter %.c,$^) -o $(part); $(whole)

WASM_TWIN := $(patsubst emulator/wasm/%.c,$(WASM)/%.o,$(wildcard emulator/wasm/*.c)) $(WASM)/problem.o
$(WASM)/%.o: emulator/wasm/%.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile)
$(WASM)/%.o: harness/browser/%.c $(WASM_COMMON) $(BUILD)/flags/cc
	$(call say,CC,$@)$(call compile,-iquote $(WASM)/include)
$(WASM)/page.so: $(WASM_TWIN) $(patsubst %.c,$(BUILD)/%.o,$(filter-out emulator/wasm/% harness/browser/%,$(WASM_C))) \
	$(BUILD)/harness/parallel.o $(BUILD)/runtime/cuda_driver.o $(BUILD)/flags/ld
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) $(filter %.o,$^) $(ALL_LDLIBS) $(linked)

-include $(wildcard $(WASM)/*.d)
