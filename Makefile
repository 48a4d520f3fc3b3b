# flashladder: sixteen versions of a FlashAttention-2 forward kernel. `make help` lists the goals.
#
#     kernels/v07_*.cu + build/v07/instances.cuh ─ nvcc ─► build/v07/v07.ptx ─ ptxas ─► build/v07/sm_80.cubin + logs/ptxas/v07.sm_80.log
#     PTX + cubins + build/harness/*.o ─ cc ─► bin/v07        log ─► regs/v07.sm_80.csv        cubin ─ nvdisasm ─► sass/v07.sm_80.sass

MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := help
-include config.mk

# --- What a user may set, on the command line or in config.mk; never appended to below. -------------------------------
CC ?= cc
ifeq ($(origin CC),default)
CC := cc
endif
CFLAGS ?= -O2 -g
NVCCFLAGS ?=
LDFLAGS ?=
ARCHS ?= 80 90
KERNELS ?= default
VER ?=
CUDA ?=
PYTHON ?= python3
LAUNCH ?=
WHY ?=

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)';)
quoted = $(subst ','\'',$(1))
comma := ,
empty :=
space := $(empty) $(empty)

# --- The toolkit: wheels in .venv unless CUDA names another one. ------------------------------------------------------
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/ready
TOOLKIT := $(or $(CUDA),$(VENV)/toolkit)
NVCC := $(TOOLKIT)/bin/nvcc
PTXAS := $(TOOLKIT)/bin/ptxas
export PATH := $(if $(CUDA),$(CUDA)/bin:)$(CURDIR)/$(VENV)/toolkit/bin:$(PATH)
export PYTHONPATH := $(CURDIR)
export LAUNCH KERNELS

# --- Folders: a build variant and a set of instances each have their own. ---------------------------------------------
VARIANT := $(if $(DEBUG),/debug)$(if $(DUMP),/dump)
B := build$(VARIANT)
BIN := bin$(VARIANT)
SET := $(if $(filter-out default,$(KERNELS)),.$(shell printf '%s' '$(call quoted,$(KERNELS))' | cksum | cut -d' ' -f1))
OWN := $(if $(SET)$(VARIANT)$(CUDA),,yes)# the default instances of the pinned toolkit: what regs/ and sass/ record

SOURCES := $(sort $(wildcard kernels/v[0-9][0-9]_*.cu))
VERSIONS := $(foreach s,$(SOURCES),$(firstword $(subst _, ,$(notdir $s))))
CHOSEN := $(or $(VER),$(VERSIONS))
folder = $(B)/$(1)$(SET)
log = $(if $(SET)$(VARIANT),$(call folder,$(1))/$(1).sm_$(2).log,logs/ptxas/$(1).sm_$(2).log)
need = $(foreach v,$(1),$(if $($v),,$(error $@ needs $v=, one of: $(VERSIONS))))$(foreach v,$(1),$(call known,$($v)))
known = $(foreach v,$(1),$(if $(filter $v,$(VERSIONS)),,$(error no version '$v'; there are: $(VERSIONS))))
$(call known,$(VER) $(filter v%,$(MAKECMDGOALS)))

ALL_NVCCFLAGS = -std=c++20 $(if $(DEBUG),-O0,-O3) --use_fast_math -lineinfo -arch=compute_80 -ptx -I. $(if $(DUMP),-DFA_DEBUG) $(NVCCFLAGS)
ALL_PTXASFLAGS = -O3 -v --generate-line-info -warn-spills -warn-lmem-usage
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -pthread -I. -MMD -MP -Wall -Wextra -Wpedantic $(if $(CI),-Werror) $(if $(DEBUG),-O0 -g,$(CFLAGS))
ALL_LDLIBS = -pthread -ldl -lm
SAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all

.PHONY: FORCE all $(VERSIONS) configs logs regs sass ptx sass-diff diff why counts loop report bench compare autotune peers profile race \
	sanitize debug notebooks accept check check-long fuzz gpu-check bench-emu lint format setup clean distclean help check-tools ladder
FORCE:

##@ Building
all: $(VERSIONS) bin/ptxrun  ## every version and ptxrun
$(VERSIONS): %: $(BIN)/%
# v07, for example: one version as bin/v07; KERNELS= chooses its instances, DEBUG=1 or DUMP=1 a variant below bin/

setup: $(READY)  ## installs the pinned toolkit and Python packages into .venv, for a machine that will be offline

$(READY): requirements.txt
	@echo '  SETUP    pinned CUDA toolkit and Python packages into $(VENV): about 300 MB to fetch, 900 MB on disk, once'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'make: $(PYTHON) is older than 3.11: set PYTHON=' >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo 'make: python3 has no venv module: install python3-venv' >&2; exit 1; }
	@$(PY) -m pip install --disable-pip-version-check --progress-bar off -r requirements.txt \
		| awk '/Downloading|Installing/ { print "           " $$1, $$2, $$3, $$4; fflush() }' || { \
		echo 'make: the packages cannot be reached; run make again to go on, or use an installed toolkit: make CUDA=/usr/local/cuda $(MAKECMDGOALS)' >&2; exit 1; }
	@ln -sfn $$(cd $(VENV) && echo lib/python3*/site-packages/nvidia/cu13) $(VENV)/toolkit
	@touch $@

# --- Stamps: files that change only when the text they hold changes. --------------------------------------------------
define stamp  # $(1) file, $(2) text
$(1): FORCE
	@mkdir -p $$(@D)
	@printf '%s\n' '$$(call quoted,$(2))' >$$@.new; cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@
endef
$(eval $(call stamp,$(B)/flags/nvcc,$$(NVCC) $$(ALL_NVCCFLAGS)))
$(eval $(call stamp,$(B)/flags/ptxas,$$(PTXAS) $$(ALL_PTXASFLAGS)))
$(eval $(call stamp,$(B)/flags/cc,$$(CC) $$(ALL_CFLAGS)))
$(eval $(call stamp,$(B)/flags/ld,$$(CC) $$(LDFLAGS)))
$(eval $(call stamp,$(B)/flags/archs,$$(ARCHS)))

$(B)/toolkit.h: $(B)/flags/nvcc | $(if $(CUDA),,$(READY))
	@printf '#define FL_TOOLKIT "%s"\n' "$$($(NVCC) --version | sed -n 's/.*, V//p')" > $@
$(B)/revision.h: FORCE
	@mkdir -p $(@D)
	@{ printf '#define FL_REVISION "%s"\n' "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"; \
	   printf '#define FL_DIRTY %d\n' $$(test -z "$$(git status --porcelain 2>/dev/null)"; echo $$?); } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# --- Host code: C11 everywhere outside kernels/. ----------------------------------------------------------------------
HARNESS := $(filter-out harness/about.c harness/main.c,$(wildcard harness/*.c)) $(filter-out harness/emu/ptxrun.c,$(wildcard harness/emu/*.c))
OBJECTS := $(HARNESS:harness/%.c=$(B)/harness/%.o)
$(B)/%.o: %.c $(B)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(B)/harness/emu/%.o: CFLAGS := $(if $(filter -O2 -g,$(CFLAGS)),-O3 -g,$(CFLAGS))

# --- The chain: one rule per arrow. -----------------------------------------------------------------------------------
define embed  # $(1) object, $(2) folder of PTX and cubins, $(3) PTX file, $(4) name of the table
$(1): harness/code.S $(2)/$(3) $(ARCHS:%=$(2)/sm_%.cubin) $(B)/flags/archs $(B)/flags/cc
	$$(call say,EMBED,$$@)$(CC) -c -DIMAGES=$(4)s -DIMAGE_COUNT=$(4)_count -DPTX='"$(3)"' \
		-DARCHS=$(subst $(space),$(comma),$(strip $(ARCHS))) -Wa,-I$(2) -o $$@ $$<
endef

define ptxas  # $(1) folder, $(2) PTX file, $(3) architecture, $(4) log
$(1)/sm_$(3).cubin $(4) &: $(1)/$(2) $(B)/flags/ptxas
	@mkdir -p $(dir $(4))
	$$(call say,PTXAS,$(1)/sm_$(3).cubin)$(PTXAS) $(ALL_PTXASFLAGS) -arch=sm_$(3) -o $(1)/sm_$(3).cubin $$< > $(4) 2>&1 || { cat $(4) >&2; exit 1; }
endef

define version  # $(1) version, $(2) source, $(3) folder
$(call stamp,$(B)/flags/set.$(1),$(3))
$(call stamp,$(3)/set,$$(KERNELS))
$(3)/instances.stamp: $(2) $(3)/set analysis/config.py analysis/ladder.py analysis/instances.py
	@$(PYTHON) -m analysis instances $(2) --set '$$(call quoted,$$(KERNELS))' --out $(3)
	@touch $$@
$(3)/instances.cuh $(3)/about.h: $(3)/instances.stamp ; @:
$(3)/$(1).ptx: $(2) $(3)/instances.cuh $(B)/flags/nvcc | $(if $(CUDA),,$(READY))
	$$(call say,NVCC,$$@)$(NVCC) $$(ALL_NVCCFLAGS) -I$(3) -MMD -MP -MT $$@ -MF $(3)/$(1).d -o $$@ $$<
$(foreach a,$(ARCHS),$(eval $(call ptxas,$(3),$(1).ptx,$a,$(call log,$(1),$a))))
$(eval $(call embed,$(3)/code.o,$(3),$(1).ptx,fl_image))
$(3)/about.o: harness/about.c $(3)/about.h $(B)/revision.h $(B)/toolkit.h $(B)/flags/cc
	$$(call say,CC,$$@)$(CC) $$(ALL_CFLAGS) -I$(3) -I$(B) -c -o $$@ $$<
$(BIN)/$(1): $(3)/code.o $(3)/about.o $(B)/harness/main.o $(OBJECTS) $(B)/device/code.o $(B)/flags/ld $(B)/flags/set.$(1)
	@mkdir -p $(BIN)
	$$(call say,LINK,$$@)$(CC) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) $(ALL_LDLIBS)
-include $(3)/$(1).d $(3)/about.d
endef
$(foreach s,$(SOURCES),$(eval $(call version,$(firstword $(subst _, ,$(notdir $s))),$s,$(call folder,$(firstword $(subst _, ,$(notdir $s)))))))

# The helper kernels of the harness: clock stamps, peak of mma.sync.
$(B)/device/device.ptx: harness/device/device.cu $(B)/flags/nvcc | $(if $(CUDA),,$(READY))
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(NVCC) $(ALL_NVCCFLAGS) -MMD -MP -MT $@ -MF $(B)/device/device.d -o $@ $<
$(foreach a,$(ARCHS),$(eval $(call ptxas,$(B)/device,device.ptx,$a,$(B)/device/sm_$a.log)))
$(eval $(call embed,$(B)/device/code.o,$(B)/device,device.ptx,fl_device_image))

bin/ptxrun: $(B)/harness/emu/ptxrun.o $(filter $(B)/harness/emu/%,$(OBJECTS)) $(B)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(ALL_LDLIBS)

# --- Tests: every C test program twice, plain and under the sanitizers; its output is a file that pytest reads. --------
C_TESTS := $(wildcard harness/tests/test_*.c harness/emu/tests/test_*.c)
TAPS := $(foreach t,$(C_TESTS:.c=),$(B)/tests/$(notdir $t).tap $(B)/tests-san/$(notdir $t).tap)
TEST_CODE := $(call folder,v01)/code.o $(call folder,v01)/about.o $(B)/device/code.o
vpath test_%.c harness/tests harness/emu/tests
$(B)/tests/%: $(B)/tests/%.o $(OBJECTS) $(TEST_CODE)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LDLIBS)
$(B)/tests-san/%: $(B)/tests-san/%.o $(OBJECTS:$(B)/harness/%=$(B)/san/harness/%) $(TEST_CODE)
	$(call say,LINK,$@)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(ALL_LDLIBS)
$(B)/tests/%.o: %.c $(B)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(B)/tests-san/%.o: %.c $(B)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) $(SAN) -c -o $@ $<
$(B)/san/%.o: %.c $(B)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) $(SAN) -c -o $@ $<
%.tap: %
	$(call say,TEST,$*)./$< >$@ 2>&1 && echo '# exit 0' >>$@ || echo "# exit $$?" >>$@

-include $(wildcard $(B)/harness/*.d $(B)/tests/*.d $(B)/tests-san/*.d $(B)/san/harness/*.d $(B)/san/harness/emu/*.d $(B)/harness/emu/*.d $(B)/device/*.d)

help:  ## lists the goals
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } /^[a-z0-9-]+( [a-z0-9-]+)*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean:  ## removes what was built, keeps .venv and records
	rm -rf build bin logs/ptxas
distclean: clean  ## also removes .venv
	rm -rf $(VENV)
