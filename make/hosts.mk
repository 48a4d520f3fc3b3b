# The library for other machines: the same kernels, and C that zig compiles.
#
#     library/, runtime/, emulator/ ─────────┐
#     build/vNN/library/: PTX and cubins ────┴─ zig cc ─► lib/FOR/libflashladder.so ─ make wheel FOR=… ─► dist/
#
# zig brings headers and libc of each target; 2.17 is the oldest glibc of aarch64. Without -ffp-contract=off its clang
# fuses a * b + c where a processor can, and the emulator's sums would have other bits.

TARGET_aarch64 := aarch64-linux-gnu.2.17
TARGET_windows := x86_64-windows-gnu
LINK_aarch64 := -ldl -lm -Wl,-soname,$(SONAME),--version-script=library/exports.map
LINK_windows = $(FOR_BUILD)/exports.def -s
FLAGS_aarch64 := -fPIC -fvisibility=hidden
FLAGS_windows := -Iruntime/windows -include runtime/windows/posix.h -Wno-unused-function
ifneq ($(FOR),)
$(if $(TARGET_$(FOR)),,$(error FOR=$(FOR): one of: aarch64 windows; without FOR= it is for this machine))
FOR_BUILD := $(BUILD)/for/$(FOR)
FOR_CC := ZIG_LOCAL_CACHE_DIR=$(FOR_BUILD)/cache ZIG_GLOBAL_CACHE_DIR=$(FOR_BUILD)/cache \
	$(ZIG_CC) -target $(TARGET_$(FOR)) -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -g0 \
	-pthread -I. -I$(BUILD) -Wall -Wextra -Wno-psabi -Wno-unknown-pragmas -Werror $(FLAGS_$(FOR))
$(eval $(call stamp,$(FOR_BUILD)/flags,$$(FOR_CC) $$(EMBEDDED) $$(GRADIENTS) $$(FOR_USERS)))
FOR_VERSIONS := $(foreach v,$(EMBEDDED) $(GRADIENTS),$(addprefix $(FOR_BUILD)/$(call identifier,$v),.o .code.o))
$(FOR_VERSIONS): $(FOR_BUILD)/flags | $(ZIG)/wasm.installed
define of_version  # $(1) folder of its PTX and cubins, $(2) its identifier, $(3) its architectures
$(FOR_BUILD)/$(2).o: library/version.c $(1)/about.h $(BUILD)/toolkit.h
	$$(call say,CC,$$@)$$(parts) $$(FOR_CC) -DIMAGES=fl_$(2)_images -DIMAGE_COUNT=fl_$(2)_image_count \
		-DENTRY=fl_$(2)_entry -I$(1) -c -o $$(part) $$<; $$(whole)
$(FOR_BUILD)/$(2).code.o: runtime/code.S $(1)/library/embedded.ptx $(3:%=$(1)/library/sm_%.cubin)
	$$(call say,EMBED,$$@)$$(parts) $$(FOR_CC) -DIMAGES=fl_$(2)_images -DIMAGE_COUNT=fl_$(2)_image_count \
		-DPTX='"embedded.ptx"' -DARCHS=$$$$(echo $(3) | tr ' ' ,) -Wa,-I$(1)/library -c -o $$(part) \
		$$<; $$(whole)
endef
$(foreach v,$(EMBEDDED) $(GRADIENTS),\
	$(eval $(call of_version,$(call folder,$v),$(call identifier,$v),$(call library_archs_of,$v))))
$(FOR_BUILD)/exports.def: library/exports.map
	@mkdir -p $(@D)
	@$(parts) { echo EXPORTS; sed -n 's/^ *\(fl_[a-z_]*\);.*/\1/p' $<; } >$(part); $(whole)
# Not a $(part): a DLL holds the name that the linker gives it.
FOR_C := $(filter-out library/version.c,$(wildcard library/*.c runtime/*.c)) \
	$(wildcard $(addsuffix /*.c,$(addprefix emulator/,ptx machine check explore)))
$(FOR_LIBRARY): $(FOR_C) $(HEADERS) $(BUILD)/library/versions.c \
		$(wildcard runtime/$(FOR)/*) $(FOR_VERSIONS) $(BUILD)/revision.h library/exports.map \
		$(FOR_BUILD)/exports.def
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(FOR_CC) -shared -o $(FOR_BUILD)/$(@F) $(filter %.c %.o,$^) $(LINK_$(FOR)) && \
		mv $(FOR_BUILD)/$(@F) $@
endif
