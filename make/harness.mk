# Host code: C11 everywhere outside kernels/.
#
#     emulator/*/*.c, runtime/*.c, harness/*.c ─ cc ─► their objects below build/, which every version links
#     build/emulator/*/*.o ─ cc ─► lib/libflemu.so, with emu.h and emu.py next to it
#     build/runtime/*.o + build/analysis/ladder/*.o ─ cc ─► lib/libflconfig.so

# -fPIC: the objects of the emulator also make a shared library.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fvisibility=hidden -fPIC -pthread -I. -MD -MP \
	-Wall -Wextra -Wpedantic -Wno-psabi $(if $(CI),-Werror) $(if $(DEBUG),-O0 -g,$(CFLAGS))
ALL_LDLIBS = -pthread -ldl -lm
compile = $(parts) $(CC) $(ALL_CFLAGS) $(1) -MT $@ -MF $(part).d -c -o $(part) $<; \
	mv $(part).d $(basename $@).d; $(whole)
linked = && $(whole) || { $(call name_broken,$(filter %.o,$^)); exit 1; }

$(eval $(call stamp,$(BUILD)/flags/cc,$$(CC) $$(filter-out -Werror,$$(ALL_CFLAGS))))# -Werror changes no object
$(eval $(call stamp,$(BUILD)/flags/ld,$$(CC) $$(LDFLAGS)))
$(BUILD)/revision.h: FORCE
	@mkdir -p $(@D)
	@$(parts) { printf '#define FL_REVISION "%s"\n' "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"; \
	   printf '#define FL_DIRTY %d\n' $$(test -z "$$(git status --porcelain 2>/dev/null)"; echo $$?); \
	} >$(part); $(update)

# about.c is compiled once for each version, main.c and ptxrun.c are not for test programs.
HARNESS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out harness/about.c harness/main.c,$(wildcard harness/*.c)))
EMULATOR_C := $(wildcard $(addsuffix /*.c,$(addprefix emulator/,ptx machine check explore cuda tool)))
EMULATOR := $(patsubst %.c,$(BUILD)/%.o,$(filter-out emulator/tool/ptxrun.c,$(EMULATOR_C)))
RUNTIME := $(patsubst %.c,$(BUILD)/%.o,$(wildcard runtime/*.c))
OBJECTS := $(HARNESS) $(RUNTIME) $(EMULATOR)
$(BUILD)/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile)

bin/ptxrun: $(BUILD)/emulator/tool/ptxrun.o $(EMULATOR) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(ALL_LDLIBS) $(linked)

# The folder can be moved away: nothing in it points to others. The library exports what emu.h declares.
.PHONY: emu-lib
emu-lib: lib/libflemu.so lib/emu.h lib/emu.py  ##+ builds the emulator as a library for C and Python: lib/
$(BUILD)/emu.map: emulator/emu.h
	@mkdir -p $(@D)
	@$(parts) { echo '{ global:'; grep -o 'emu_[a-z_]*(' $< | sort -u | tr '(' ';'; \
		echo 'local: *; };'; } >$(part); $(whole)
lib/libflemu.so: $(filter-out $(BUILD)/emulator/tool/%,$(EMULATOR)) $(BUILD)/emu.map $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) \
		-Wl,-soname,$(@F),--version-script=$(BUILD)/emu.map $(filter %.o,$^) $(ALL_LDLIBS) $(linked)
lib/emu.h lib/emu.py: lib/%:
	@mkdir -p $(@D)
	@$(parts) cp $< $(part); $(whole)
lib/emu.h: emulator/emu.h
lib/emu.py: emulator/python/emu.py

# What the programs in Python ask about configurations. They make it themselves where it is missing or older than this.
lib/libflconfig.so: $(patsubst %,$(BUILD)/%.o,analysis/ladder/config_library \
		$(addprefix runtime/,config cuda_driver json launch status tensor_maps)) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) $(filter %.o,$^) $(ALL_LDLIBS) $(linked)

-include $(wildcard $(BUILD)/analysis/*/*.d $(BUILD)/harness/*.d $(BUILD)/runtime/*.d $(BUILD)/emulator/*/*.d)
