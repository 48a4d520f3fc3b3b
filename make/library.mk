# The library: the interface of include/flashladder.h over embedded kernels, for programs in C and for Python.
#
#     build/vNN/vNN.ptx ─ without source lines, which a library does not need ─► build/vNN/library/library.ptx
#     build/vNN/sm_90a.cubin ─ strip ─► build/vNN/library/sm_90a.cubin: the same code, a quarter of the bytes
#     build/vNN/library/library.ptx ─ ptxas ─► build/vNN/library/sm_120.cubin, for sm_100 and newer
#     build/vNN/library/library.ptx ─ without comments around asm ─► build/vNN/library/embedded.ptx
#     all of build/vNN/library/ ─ embed ─► build/vNN/library.code.o
#     build/vNN/about.h + library/version.c ─ cc ─► build/vNN/library.o
#     both of each version + build/{library,runtime,emulator}/*.o ─ cc ─► lib/libflashladder.so

# The kernels of kernels/attention/, unless VER names others.
GRADIENTS := $(filter-out $(LEFT_OUT),$(filter attention.backward%,$(or $(VER),$(VERSIONS))))
EMBEDDED := $(filter-out $(GRADIENTS),$(or $(VER),$(filter-out $(LEFT_OUT),$(ATTENTION))))
identifier = $(subst .,_,$(1))# of a kernel, in C
# The library has cubins for ARCHS, as executables have. A wheel goes to machines that nobody knows, so it has cubins
# for every GPU. Code for 8.0 runs on 8.6 and 8.9.
ifneq ($(filter wheel,$(MAKECMDGOALS)),)
GPUS := all
endif
FOR_USERS := $(ARCHS) $(if $(GPUS),$(filter-out $(ARCHS),100 120))
library_archs_of = $(or $(call only_arch,$(1)),$(call since,$(1),$(FOR_USERS)))
# From sm_100 on, ptxas also writes debug sections in a second form that shares their bytes, so no cubin is stripped.
stripped = $(filter-out 1%,$(call archs_of,$(1)))
LIBRARY := $(patsubst %.c,$(BUILD)/%.o,$(filter-out library/version.c,$(wildcard library/*.c)))

define code_alone  # $(1) folder, $(2) architecture
$(1)/sm_$(2).cubin: $(1)/library.ptx $(BUILD)/flags/ptxas
	$$(call say,PTXAS,$$@)$$(parts) $(PTXAS) -O3 -arch=sm_$(2) -o $$(part) $$<; $$(whole)
endef
define code_of_version  # $(1) folder of the version, $(2) architecture
$(1)/library/sm_$(2).cubin: $(1)/sm_$(2).cubin analysis/machine_code/strip.py
	$$(call say,STRIP,$$@)$(RUN) -m analysis strip $$< -o $$@
endef
define embedded  # $(1) version, $(2) folder of its PTX and cubins, $(3) its identifier
$(2)/library/library.ptx: $(2)/$(1).ptx
	@mkdir -p $$(@D)
	@$(parts) sed '/^\t\.loc\t/d; /^\t\.section\t/,/^\t}/d' $$< >$$(part); $$(whole)
$(2)/library/embedded.ptx: $(2)/library/library.ptx make/library.mk
	@$(parts) sed '/^\t\/\/ [a-z]* inline asm$$$$/d' $$< >$$(part); $$(whole)
$(foreach a,$(filter $(call stripped,$(1)),$(call library_archs_of,$(1))),$(eval $(call code_of_version,$(2),$a)))
$(foreach a,$(filter-out $(call stripped,$(1)),$(call library_archs_of,$(1))),\
	$(eval $(call code_alone,$(2)/library,$a)))
$(call embed,$(2)/library.code.o,$(2)/library,embedded.ptx,fl_$(3)_image,$(call library_archs_of,$(1)))
$(2)/library.code.o: $(BUILD)/flags/library_archs
$(2)/library.o: library/version.c $(2)/about.h $(BUILD)/toolkit.h $(BUILD)/flags/cc
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)$$(call compile,-DIMAGES=fl_$(3)_images -DIMAGE_COUNT=fl_$(3)_image_count \
		-DENTRY=fl_$(3)_entry -I$(2) -I$(BUILD))
-include $(2)/library.d
endef
$(eval $(call stamp,$(BUILD)/flags/library_archs,$$(FOR_USERS)))
$(foreach v,$(VERSIONS),$(eval $(call embedded,$v,$(call folder,$v),$(call identifier,$v))))

EMBEDDED_FOLDERS := $(foreach v,$(EMBEDDED) $(GRADIENTS),$(call folder,$v))
$(eval $(call stamp,$(BUILD)/flags/library,$$(EMBEDDED_FOLDERS)))
$(BUILD)/library/versions.c: $(BUILD)/flags/library
	@mkdir -p $(@D)
	@$(parts) { echo '#include "library/version.h"'; \
	   printf 'extern const struct version fl_%s_entry;\n' $(call identifier,$(EMBEDDED) $(GRADIENTS)); \
	   echo 'const struct version *const versions[] = {'; \
	   printf '    &fl_%s_entry,\n' $(call identifier,$(EMBEDDED)); \
	   echo '};'; echo 'const size_t version_count = sizeof versions / sizeof *versions;'; \
	   echo 'const struct version *const backward_versions[] = {'; \
	   printf '%s\n' $(patsubst %,'    &fl_%_entry$(comma)',$(call identifier,$(GRADIENTS))); \
	   echo '    0};'; \
	} >$(part); $(whole)
LIBRARY_CODE := $(BUILD)/library/versions.o $(EMBEDDED_FOLDERS:%=%/library.o) $(EMBEDDED_FOLDERS:%=%/library.code.o)
$(BUILD)/library/versions.o: $(BUILD)/library/versions.c $(BUILD)/flags/cc
	$(call say,CC,$@)$(call compile)
$(BUILD)/library/flashladder.o: library/flashladder.c $(BUILD)/revision.h $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,-I$(BUILD))

# library/exports.map says what is exported, by the FL_ABI that added it. The ABI grows and does not change, so programs
# that were linked with an older one run with a newer one: the number in the name stays.
SONAME := libflashladder.so.1
# glibc 2.34 moved functions into libc.so.6 under new versions, and 2.29 has exp2() and log2() that treat errno another
# way. Linked with stub libraries, whose versions every glibc of x86-64 answers for, the library runs from 2.16 on. A
# linker reads one library of a name, so the one of libm has all functions of its oldest version.
OLD_libdl.so.2 := dlopen dlsym dlclose dlerror
OLD_libpthread.so.0 := pthread_create pthread_join pthread_once
OLD_libm.so.6 = $$(nm -D $$($(CC) -print-file-name=libm.so.6) | sed -n 's/.* [TWi] \(.*[^@]\)@@*GLIBC_2\.2\.5$$/\1/p')
STAND_INS := $(addprefix $(BUILD)/library/glibc/,libdl.so.2 libpthread.so.0 libm.so.6)
$(STAND_INS): $(BUILD)/library/glibc/%: make/library.mk
	@mkdir -p $(@D)
	@$(parts) printf 'void %s(void) {}\n' $(OLD_$*) | $(CC) -shared -fPIC -nostdlib -w -x c - -o $(part) \
		-Wl,-soname,$*,--version-script=<(echo 'GLIBC_2.2.5 { *; };'); $(whole)

FOR_LIBRARY := lib/$(FOR:%=%/)$(if $(filter windows,$(FOR)),flashladder.dll,libflashladder.so)
.PHONY: lib
lib: $(FOR_LIBRARY)  ## builds the production kernels, or VER="…", as a library: include/flashladder.h [FOR= GPUS=]
IN_LIBRARY := $(RUNTIME) $(filter-out $(BUILD)/emulator/tool/% $(BUILD)/emulator/cuda/%,$(EMULATOR))
lib/$(SONAME): $(LIBRARY) $(LIBRARY_CODE) $(IN_LIBRARY) $(STAND_INS) library/exports.map \
		$(BUILD)/flags/library $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) $(filter %.o,$^) $(STAND_INS) $(ALL_LDLIBS) \
		-Wl,-soname,$(@F),--version-script=library/exports.map,--no-undefined $(linked)
lib/libflashladder.so: lib/$(SONAME)
	@ln -sfn $(<F) $@

PREFIX ?= /usr/local
INTO = $(DESTDIR)$(PREFIX)
RELEASE := $(shell sed -n 's/^\#define FL_RELEASE "\(.*\)".*/\1/p' include/flashladder.h 2>/dev/null)
.PHONY: install
install: lib  ##+ installs library, header, license and flashladder.pc in PREFIX= (/usr/local) [DESTDIR=]
	install -d '$(INTO)/lib/pkgconfig' '$(INTO)/include' '$(INTO)/share/doc/flashladder'
	install lib/$(SONAME) '$(INTO)/lib/$(SONAME)'
	ln -sfn $(SONAME) '$(INTO)/lib/libflashladder.so'
	install -m 644 include/flashladder.h '$(INTO)/include/flashladder.h'
	install -m 644 LICENSE '$(INTO)/share/doc/flashladder/LICENSE'
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: flashladder' 'Description: attention forward on NVIDIA GPUs' \
		'Version: $(RELEASE)' 'Libs: -L$${prefix}/lib -lflashladder' 'Cflags: -I$${prefix}/include' \
		>'$(INTO)/lib/pkgconfig/flashladder.pc'

# Files that are gone would stay in the wheel, so setuptools' folder goes first. One make at a time.
.PHONY: wheel
wheel: lib | $(WHEEL)  ## builds the Python package, which contains the library: dist/ [VER=] [FOR=aarch64|windows]
	$(call say,WHEEL,dist/)$(call one_make,wheel); \
		rm -rf build/wheel dist/flashladder-*_$(or $(subst windows,amd64,$(FOR)),$(shell uname -m)).whl; \
		$(PY) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

# The tools for files of anybody, with the emulator. Their wheel leaves that of the library where it is.
.PHONY: wheel-tools
wheel-tools: bin/ptxrun judge-tools emu-lib lib/libflconfig.so
wheel-tools: | $(WHEEL)  ## builds the tools and the emulator as a Python package: dist/
	$(call say,WHEEL,dist/)$(call one_make,wheel); rm -rf build/wheel-tools dist/flashladder_tools-*; \
		$(PY) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist python/tools
	@ls dist/flashladder_tools-*.whl

-include $(wildcard $(BUILD)/library/*.d)
