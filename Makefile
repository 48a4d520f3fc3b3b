# flashladder: sixteen versions of a FlashAttention-2 forward kernel. `make help` lists the goals.
#
#     kernels/v07_*.cu + build/v07/instances.cuh ─ nvcc ─► build/v07/v07.ptx ─ ptxas ─► build/v07/sm_80.cubin + logs/ptxas/v07.sm_80.log
#     PTX + cubins + build/harness/*.o ─ cc ─► bin/v07        log ─► regs/v07.sm_80.csv        cubin ─ nvdisasm ─► sass/v07.sm_80.sass

MAKEFLAGS += --no-builtin-rules
# All cores, unless -j says otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := help
-include config.mk
# --- What a user may set, on the command line or in config.mk; never appended to below. -------------------------------
CC := $(if $(filter default,$(origin CC)),cc,$(CC))
CFLAGS ?= -Og
NVCCFLAGS ?=
LDFLAGS ?=
ARCHS ?= 80 90
KERNELS ?= default
VER ?=
CUDA ?=
PYTHON ?= python3
LAUNCH ?=
WHY ?=

say = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)';)
quoted = $(subst ','\'',$(1))

# --- The toolkit: wheels in .venv unless CUDA names another one. ------------------------------------------------------
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/ready
RUN = $(if $(wildcard $(PY)),$(PY),$(PYTHON))
TOOLKIT := $(or $(CUDA),$(VENV)/toolkit)
NVCC := $(TOOLKIT)/bin/nvcc
PTXAS := $(TOOLKIT)/bin/ptxas
export PATH := $(if $(CUDA),$(CUDA)/bin:)$(CURDIR)/$(VENV)/toolkit/bin:$(PATH)
export PYTHONPATH := $(CURDIR)
export LAUNCH KERNELS

# --- Folders: a build variant and a set of instances each have their own. ---------------------------------------------
VARIANT := $(if $(DEBUG),/debug)$(if $(DUMP),/dump)
BUILD := build$(VARIANT)
BIN := bin$(VARIANT)
SET := $(if $(filter-out default,$(KERNELS)),.$(shell printf '%s' '$(call quoted,$(KERNELS))' | cksum | cut -d' ' -f1))
OWN := $(if $(SET)$(VARIANT)$(CUDA),,yes)# the default instances of the pinned toolkit: what regs/ and sass/ record

SOURCES := $(sort $(wildcard kernels/v[0-9][0-9]_*.cu))
VERSIONS := $(foreach s,$(SOURCES),$(firstword $(subst _, ,$(notdir $s))))
GENERATOR := $(addprefix analysis/,instances.py config.py ladder.py checks.py files.py errors.py)
CHOSEN := $(or $(VER),$(VERSIONS))
folder = $(BUILD)/$(1)$(SET)
log = $(if $(SET)$(VARIANT),$(call folder,$(1))/$(1).sm_$(2).log,logs/ptxas/$(1).sm_$(2).log)
record = $(if $(OWN),$(1),$(BUILD)/$(1)$(SET))/$(2).sm_$(3).$(4)# a file that is committed for the default instances of the pinned toolkit
need = $(foreach v,$(1),$(if $($v),,$(error $@ needs $v=, one of: $(VERSIONS))))$(foreach v,$(1),$(call known,$($v)))
known = $(foreach v,$(1),$(if $(filter $v,$(VERSIONS)),,$(error no version '$v'; there are: $(VERSIONS))))
$(call known,$(VER) $(filter v%,$(MAKECMDGOALS)))

ALL_NVCCFLAGS = -std=c++20 $(if $(DEBUG),-O0,-O3) --use_fast_math -lineinfo -arch=compute_80 -ptx -I. $(if $(DUMP),-DFA_DEBUG) $(NVCCFLAGS)
ALL_PTXASFLAGS = -O3 -v --generate-line-info -warn-spills -warn-lmem-usage
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -pthread -I. -MMD -MP -Wall -Wextra -Wpedantic -Wno-psabi $(if $(CI),-Werror) $(if $(DEBUG),-O0 -g,$(CFLAGS))
ALL_LDLIBS = -pthread -ldl -lm
SAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all

.PHONY: FORCE all cubins $(VERSIONS) configs logs regs sass ptx sass-diff diff why counts loop report bench compare autotune peers profile race \
	sanitize debug notebooks accept check check-long fuzz gpu-check bench-emu lint format setup clean distclean help \
	check-tools ladder live bound

##@ Building
all: $(VERSIONS) bin/ptxrun  ## every version and ptxrun
$(VERSIONS): %: $(BIN)/%
# make v07 builds bin/v07; KERNELS= chooses its instances, DEBUG=1 or DUMP=1 a variant below bin/

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
$(eval $(call stamp,$(BUILD)/flags/nvcc,$$(NVCC) $$(ALL_NVCCFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/ptxas,$$(PTXAS) $$(ALL_PTXASFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/cc,$$(CC) $$(ALL_CFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/ld,$$(CC) $$(LDFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/archs,$$(ARCHS)))

$(BUILD)/toolkit.h: $(BUILD)/flags/nvcc | $(if $(CUDA),,$(READY))
	@printf '#define FL_TOOLKIT "%s"\n' "$$($(NVCC) --version | sed -n 's/.*, V//p')" > $@
$(BUILD)/revision.h: FORCE
	@mkdir -p $(@D)
	@{ printf '#define FL_REVISION "%s"\n' "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"; \
	   printf '#define FL_DIRTY %d\n' $$(test -z "$$(git status --porcelain 2>/dev/null)"; echo $$?); } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# --- Host code: C11 everywhere outside kernels/. ----------------------------------------------------------------------
HARNESS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out harness/about.c harness/main.c,$(wildcard harness/*.c)))
EMULATOR_C := $(wildcard $(addsuffix /*.c,$(addprefix harness/emu/,ptx machine check tool)))
EMULATOR := $(patsubst %.c,$(BUILD)/%.o,$(filter-out harness/emu/tool/ptxrun.c,$(EMULATOR_C)))
OBJECTS := $(HARNESS) $(EMULATOR)
HOT := reference inputs $(addprefix emu/,check/shadow $(addprefix machine/,frequent memory mma warp) $(addprefix ptx/,lexer parser registers))# where a run spends its time
$(HOT:%=$(BUILD)/harness/%.o): CFLAGS := $(patsubst -Og,-O2,$(CFLAGS))
$(BUILD)/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# --- The chain: one rule per arrow. -----------------------------------------------------------------------------------
define embed  # $(1) object, $(2) folder of PTX and cubins, $(3) PTX file, $(4) name of the table
$(1): harness/code.S $(2)/$(3) $(ARCHS:%=$(2)/sm_%.cubin) $(BUILD)/flags/archs $(BUILD)/flags/cc
	$$(call say,EMBED,$$@)$(CC) -c -DIMAGES=$(4)s -DIMAGE_COUNT=$(4)_count -DPTX='"$(3)"' \
		-DARCHS=$$$$(echo $(ARCHS) | tr ' ' ,) -Wa,-I$(2) -o $$@ $$<
endef

define ptxas  # $(1) folder, $(2) PTX file, $(3) architecture, $(4) log
$(1)/sm_$(3).cubin $(4) &: $(1)/$(2) $(BUILD)/flags/ptxas
	@mkdir -p $(dir $(4))
	$$(call say,PTXAS,$(1)/sm_$(3).cubin)$(PTXAS) $(ALL_PTXASFLAGS) -arch=sm_$(3) -o $(1)/sm_$(3).cubin $$< > $(4) 2>&1 || { cat $(4) >&2; exit 1; }
endef

define records  # $(1) version, $(2) architecture, $(3) cubin, $(4) log
$(basename $(4)).demangled.log: $(4)
	@$(RUN) -m analysis demangle $$< -o $$@
$(call record,regs,$(1),$(2),csv): $(3) $(4)
	@mkdir -p $$(@D)
	@$(RUN) -m analysis regs --version $(1) --arch sm_$(2) --log $(4) --cubin $(3) --csv -o $$@
$(call record,sass,$(1),$(2),sass): $(3)
	@mkdir -p $$(@D)
	$$(call say,NVDISASM,$$@)$(RUN) -m analysis sass $(1) --arch sm_$(2) $(if $(SET),--config '$$(call quoted,$$(KERNELS))') -o $$@
endef

define version  # $(1) version, $(2) source, $(3) folder
$(call stamp,$(BUILD)/flags/set.$(1),$(3))
$(3)/instances.stamp: $(2) $(GENERATOR)
	@$(RUN) -m analysis instances $(2) --set '$$(call quoted,$$(KERNELS))' --out $(3)
	@touch $$@
$(3)/instances.cuh $(3)/about.h: $(3)/instances.stamp ; @:
$(3)/$(1).ptx: $(2) $(3)/instances.cuh $(BUILD)/flags/nvcc | $(if $(CUDA),,$(READY))
	$$(call say,NVCC,$$@)$(NVCC) $$(ALL_NVCCFLAGS) -I$(3) -MMD -MP -MT $$@ -MF $(3)/$(1).d -o $$@ $$<
$(foreach a,$(ARCHS),$(eval $(call ptxas,$(3),$(1).ptx,$a,$(call log,$(1),$a))))
$(eval $(call embed,$(3)/code.o,$(3),$(1).ptx,fl_image))
$(3)/about.o: harness/about.c $(3)/about.h $(BUILD)/revision.h $(BUILD)/toolkit.h $(BUILD)/flags/cc
	$$(call say,CC,$$@)$(CC) $$(ALL_CFLAGS) $(if $(DUMP),-DFA_DEBUG) -I$(3) -I$(BUILD) -c -o $$@ $$<
# In this order make starts jobs: nvcc amid the objects, once it has the instances, and ptxas at the end.
$(BIN)/$(1): $(3)/about.o $(BUILD)/device/code.o $(BUILD)/harness/main.o $(3)/instances.cuh $(EMULATOR) $(3)/code.o $(HARNESS) $(BUILD)/flags/ld $(BUILD)/flags/set.$(1)
	@mkdir -p $(BIN)
	$$(call say,LINK,$$@)$(CC) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) $(ALL_LDLIBS)
$(foreach a,$(ARCHS),$(eval $(call records,$(1),$a,$(3)/sm_$a.cubin,$(call log,$(1),$a))))
-include $(3)/$(1).d $(3)/about.d
endef
$(foreach s,$(SOURCES),$(eval $(call version,$(firstword $(subst _, ,$(notdir $s))),$s,$(call folder,$(firstword $(subst _, ,$(notdir $s)))))))

# The helper kernels of the harness: clock stamps, peak of mma.sync.
$(BUILD)/device/device.ptx: harness/device/device.cu $(BUILD)/flags/nvcc | $(if $(CUDA),,$(READY))
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(NVCC) $(ALL_NVCCFLAGS) -MMD -MP -MT $@ -MF $(BUILD)/device/device.d -o $@ $<
$(foreach a,$(ARCHS),$(eval $(call ptxas,$(BUILD)/device,device.ptx,$a,$(BUILD)/device/sm_$a.log)))
$(eval $(call embed,$(BUILD)/device/code.o,$(BUILD)/device,device.ptx,fl_device_image))

bin/ptxrun: $(BUILD)/harness/emu/tool/ptxrun.o $(EMULATOR) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(ALL_LDLIBS)

# --- Tests: every C test program twice, plain and under the sanitizers; its output is a file that pytest reads. --------
C_TESTS := $(wildcard harness/tests/test_*.c harness/emu/tests/test_*.c)
TAPS := $(foreach t,$(C_TESTS:.c=),$(BUILD)/tests/$(notdir $t).tap $(BUILD)/tests-san/$(notdir $t).tap)
TEST_CODE := $(call folder,v01)/code.o $(call folder,v01)/about.o $(BUILD)/device/code.o
vpath test_%.c harness/tests harness/emu/tests
vpath bench_%.c harness/emu/tests
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(OBJECTS) $(TEST_CODE)
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LDLIBS)
$(BUILD)/tests/bench_emu.%: $(BUILD)/tests/bench_emu.o $(OBJECTS) $(BUILD)/%/code.o $(BUILD)/%/about.o $(BUILD)/device/code.o
	$(call say,LINK,$@)$(CC) $(LDFLAGS) -o $@ $^ $(ALL_LDLIBS)
$(BUILD)/tests-san/%: $(BUILD)/tests-san/%.o $(OBJECTS:$(BUILD)/harness/%=$(BUILD)/san/harness/%) $(TEST_CODE)
	$(call say,LINK,$@)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(ALL_LDLIBS)
$(BUILD)/tests/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/tests-san/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) $(SAN) -c -o $@ $<
$(BUILD)/san/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CFLAGS) $(SAN) -c -o $@ $<
%.tap: %
	$(call say,TEST,$*)./$< >$@ 2>&1 && echo '# exit 0' >>$@ || echo "# exit $$?" >>$@

-include $(wildcard $(BUILD)/harness/*.d $(BUILD)/tests/*.d $(BUILD)/tests-san/*.d $(BUILD)/san/harness/*.d $(BUILD)/san/harness/emu/*/*.d $(BUILD)/harness/emu/*/*.d $(BUILD)/device/*.d)

##@ Looking at machine code
regs: $(foreach v,$(CHOSEN),$(foreach a,$(ARCHS),$(call record,regs,$v,$a,csv)))  ## registers, spills and code hash: regs/vNN.sm_XX.csv and a report
	@$(RUN) -m analysis registers --version "$(CHOSEN)" $(if $(OWN),,--folder $(BUILD)/regs$(SET))
sass: $(foreach v,$(CHOSEN),$(foreach a,$(ARCHS),$(call record,sass,$v,$a,sass)))  ## listings with control codes: sass/vNN.sm_XX.sass
ptx: $(foreach v,$(CHOSEN),$(call folder,$v)/$v.ptx)  ## the PTX of every version: build/vNN/vNN.ptx
	@ls -l $^
logs: $(foreach v,$(CHOSEN),$(foreach a,$(ARCHS),$(basename $(call log,$v,$a)).demangled.log))  ## what ptxas said, demangled; NAME= keeps a capture
	@$(if $(NAME),$(RUN) -m analysis capture --name "$(NAME)",ls $^)
counts loop bound live: cubins  ## opcodes of the whole kernel, of the KV loop, its bounds, its registers: VER=
	@$(RUN) -m analysis $@ $(CHOSEN) $(ARGS)
sass-diff:  ## what changed in the machine code, loop first: A= B= [CONFIG=] [ARGS=--text]
	$(call pair)
	@$(RUN) -m analysis $@ $(A) $(B) $(if $(CONFIG),--config '$(call quoted,$(CONFIG))') $(ARGS)
why:  ## one sheet: idea, source, machine code, bounds, measured time: A= B=
	$(call pair)
	@$(MAKE) --no-print-directory $(A) $(B)
	@$(RUN) -m analysis $@ $(A) $(B) $(if $(CONFIG),--config '$(call quoted,$(CONFIG))') $(ARGS)
diff:  ## what changed in the source, and how many lines: A= B=
	$(call need,A B)
	@$(RUN) -m analysis $@ $(A) $(B)
configs:  ## the members of a set and what a version refuses: KERNELS= [VER=]
	@$(RUN) -m analysis $@ $(if $(VER),--version "$(VER)") --set '$(call quoted,$(KERNELS))'
check-tools:  ## what the parsers recognise in any log, listing, cubin or executable: FILES=
	@$(RUN) -m analysis $@ $(FILES)
report: all  ## one page over all versions: build/report.html and build/report.md
	@$(RUN) -m analysis $@
ladder: all  ## rewrites the generated tables of the documents
	@$(RUN) -m analysis traffic --write
	@$(RUN) -m analysis $@ --write
notebooks: $(READY)  ## runs the notebooks on committed data and keeps their outputs
	@$(PY) -m analysis $@ --write
accept:  ## takes the figures of a version into regs/baseline.csv: VER= WHY=
	$(if $(WHY),,$(error accept needs WHY="the reason"))
	@$(MAKE) --no-print-directory regs sass VER="$(CHOSEN)" >/dev/null
	@$(RUN) -m analysis $@ --version "$(CHOSEN)" --why '$(call quoted,$(WHY))'

cubins: $(foreach v,$(CHOSEN),$(foreach a,$(ARCHS),$(call folder,$v)/sm_$a.cubin))
# Both sides of a comparison, each built for the configuration that the rule of `pair-config` gives it.
define pair
	$(call need,A B)
	@$(RUN) -m analysis pair-config $(A) $(B) $(if $(CONFIG),--config '$(call quoted,$(CONFIG))') | while IFS=$$'\t' read -r version config; do \
		$(MAKE) --no-print-directory cubins VER="$$version" KERNELS="$$config"; done
endef

##@ Measuring
measured = $(PYTHON) -m analysis $@ $(if $(SEQS),--seqs $(SEQS)) $(if $(BUDGET),--budget $(BUDGET)) $(ARGS)
bench profile gpu-check: $(CHOSEN)  ## on a GPU, by version: VER= [SEQS=] [BUDGET=] [ARGS=]
	@$(measured) --versions "$(CHOSEN)"
peers: $(CHOSEN)  ## PyTorch's attention and cuBLAS beside ours, on a GPU that has PyTorch
	@$(measured)
compare: $(A) $(B)  ## SAME, FASTER, SLOWER or UNSURE: A= B=
	$(call need,A B)
	@$(measured) $(A) $(B)
autotune:  ## the fastest configuration of a version: VER= [KERNELS=tune] [SEQS=]; ranked by counts where there is no GPU
	$(call need,VER)
	@$(MAKE) --no-print-directory BIN=bin/tune KERNELS='$(or $(filter-out default,$(call quoted,$(KERNELS))),tune)' $(VER)
	@BIN=bin/tune $(measured) --versions "$(VER)"
race sanitize: $(CHOSEN)  ## races and bad accesses: the emulator's checks, compute-sanitizer where there is a GPU: VER=
	@$(PYTHON) -m analysis $@ --versions "$(CHOSEN)" --exit-code $(ARGS)
debug:  ## S, m, P, l and O after every KV block against NumPy: VER= [CONFIG=] [SEQ=] [DTYPE=] [DIST=]
	$(call need,VER)
	@$(MAKE) --no-print-directory DUMP=1 $(VER) $(if $(CONFIG),KERNELS='$(call quoted,$(CONFIG))')
	@$(RUN) -m analysis debug --version $(VER) $(if $(CONFIG),--config '$(call quoted,$(CONFIG))') $(if $(SEQ),--seq $(SEQ)) \
		$(if $(DTYPE),--dtype $(DTYPE)) $(if $(DIST),--dist $(DIST)) $(ARGS)
bench-emu: $(BUILD)/tests/bench_emu.v16 $(foreach v,$(VERSIONS),$(call folder,$v)/$v.ptx) $(BIN)/v16 | $(READY)  ## how fast the emulator is on this machine: [ARGS=--write]
	@$(PY) harness/emu/tests/speed.py --compiler '$(CC) $(CFLAGS), -O2 where a run spends its time' $(ARGS) $(filter-out $(BIN)/%,$^)

##@ Testing
check: lint all $(TAPS)  ## every test that needs no GPU
	@$(MAKE) --no-print-directory DUMP=1 v01
	$(PY) -m pytest -n 2 --dist worksteal -m "not long and not gpu"
check-long: all $(TAPS)  ## the tests that take minutes
	$(PY) -m pytest -n 2 --dist worksteal -m "long"
fuzz: $(BUILD)/tests-san/test_fuzz  ## feeds the emulator's parser broken PTX for SECONDS= (60)
	SECONDS_TO_FUZZ=$(or $(SECONDS),60) $<

C_FILES := $(EMULATOR_C) $(wildcard harness/*.c harness/tests/*.c harness/emu/tests/*.c)
FORMATTED := $(C_FILES) $(wildcard common/*.h common/*.cuh harness/*.h harness/emu/*.h harness/emu/*/*.h harness/tests/*.h harness/device/*.cu kernels/*.cu)
lint: $(READY) $(C_FILES:%.c=build/lint/%.tidy)  ## clang-format, clang-tidy, ruff and mypy
	@$(VENV)/bin/clang-format --dry-run -Werror $(FORMATTED)
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check . && $(PY) -m mypy
build/lint/%.tidy: %.c .clang-tidy | $(READY) build/revision.h build/toolkit.h build/v01/about.h
	@mkdir -p $(@D)
	$(call say,TIDY,$<)$(VENV)/bin/clang-tidy --quiet $< -- -std=c11 -D_GNU_SOURCE -I. -Ibuild -Ibuild/v01 >$@.log 2>&1 || { cat $@.log >&2; exit 1; }
	@touch $@
format: $(READY)  ## rewrites C, CUDA and Python files in the house style
	$(VENV)/bin/clang-format -i $(FORMATTED)
	$(VENV)/bin/ruff check -q --fix . && $(VENV)/bin/ruff format -q .
compile_commands.json:  ## for clangd and other editors
	@printf '%s\n' $(C_FILES) | sed 's|.*|{"directory": "$(CURDIR)", "file": "&", "command": "cc -std=c11 -D_GNU_SOURCE -I. -c &"}|' | paste -sd, | sed 's/^/[/; s/$$/]/' >$@

##@ Housekeeping
help:  ## lists the goals
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } /^[a-z0-9-]+( [a-z0-9-]+)*:.*## / { sub(/:.*/, "", $$1); while (length($$1) > 22) { n = match(substr($$1, 1, 22), / [^ ]*$$/); print "  " substr($$1, 1, n - 1); $$1 = substr($$1, n + 1) } printf "  %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean:  ## removes what was built, keeps .venv and records
	rm -rf build bin logs/ptxas
distclean: clean  ## also removes .venv
	rm -rf $(VENV)
