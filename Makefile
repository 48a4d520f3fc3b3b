# flashladder: FlashAttention forward kernels from plain to fast, one executable each. `make help` lists the goals.
#
#     make/arguments.mk refuses what a command line should not say
#     make/toolkit.mk   the pinned CUDA toolkit and Python packages
#     make/harness.mk   host code: harness and emulator
#     make/version.mk   the chain from a kernel file to an executable and its records, one rule per arrow
#     make/library.mk   versions as a library for programs in C and for Python
#     make/hosts.mk     the library for other machines
#     make/libcuda.mk   the driver API over the emulator, and bin/emulated-gpu
#     make/judge.mk     replays of what a program did on a GPU, and their jail
#     make/wasm.mk      the emulator in WebAssembly, for pages
#     make/inspect.mk   looking at source and machine code, tables and pages
#     make/measure.mk   running and timing versions
#     make/learn.mk     exercises
#     make/tests.mk     C test programs, pytest, lint
#
# Two makefiles include this one: harness/peers/peers.mk (libraries to measure against, from their own source) and
# emulator/suite/suite.mk (programs of others on the emulator).

MAKEFLAGS += --no-builtin-rules
# All cores, unless -j says otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SECONDARY:# or make deletes the objects that only pattern rules name
.DEFAULT_GOAL := help
-include config.mk

# --- What a user may set, on the command line or in config.mk; never appended to below. -------------------------------
CC := $(if $(filter default,$(origin CC)),cc,$(CC))
CFLAGS ?= -O2
NVCCFLAGS ?=
LDFLAGS ?=
ARCHS ?= 80 90
KERNELS ?= default
VER ?=
CUDA ?=
PYTHON ?= python3
LAUNCH ?=
WHY ?=

# --- Folders: a build variant and a set of instances each have their own. ---------------------------------------------
VARIANT := $(if $(DEBUG),/debug)$(if $(DUMP),/dump)
BUILD := build$(VARIANT)
BIN := bin$(VARIANT)
SET := $(if $(filter-out default,$(KERNELS)),.$(shell printf '%s' '$(subst ','\'',$(KERNELS))' | cksum | cut -d' ' -f1))

# A version is vNN, or vNNa, vNNb between vNN and the next one; its file is vNN_name.cu. One of the backward pass is
# bNN, one of fp8 is fNN.
version_files = $(sort $(wildcard $(foreach l,_ [a-z]_,$(1:%=kernels/%/[vbf][0-9][0-9]$l*.cu))))
versions_in = $(foreach s,$(sort $(notdir $(call version_files,$(1)))),$(firstword $(subst _, ,$s)))
SOURCES := $(call version_files,*)
# The kernels of kernels/attention/ are built as versions are; here and in names of files theirs is attention.wgmma.
ATTENTION := $(patsubst kernels/attention/%.cu,attention.%,$(sort $(wildcard kernels/attention/*.cu)))
BACKWARD := $(call versions_in,backward)
FP8 := $(call versions_in,fp8)
VERSIONS := $(call versions_in,mma_sync wgmma) $(ATTENTION) $(BACKWARD) $(FP8)
# A version in kernels/wgmma/ has one cubin, for sm_90a, where ARCHS has 90 or 90a. One in kernels/mma_sync/ has a cubin
# for each of ARCHS. LEFT_OUT: the versions that have none.
GEFORCE := $(filter %mma_scaled,$(ATTENTION))# for sm_120a, where ARCHS has 120 or, as by default, 90
HOPPER := $(call versions_in,wgmma) $(filter-out %mma_sync $(GEFORCE),$(ATTENTION)) \
	$(filter-out b01 b02 b03,$(BACKWARD)) $(FP8)
LEFT_OUT := $(if $(filter 90 90a,$(ARCHS)),,$(HOPPER)) $(if $(filter 90 90a 120 120a,$(ARCHS)),,$(GEFORCE))
only_arch = $(if $(filter $(1),$(HOPPER)),90a)$(if $(filter $(1),$(GEFORCE)),120a)# empty for versions of many GPUs
# Those that multiply e4m3 by mma.sync are for 8.9 and newer: where others have a cubin for 8.0, they have one for 8.9.
ADA := attention.fp8_mma_sync
since = $(if $(filter $(1),$(ADA)),$(sort $(patsubst 8%,89,$(2))),$(2))# since,VERSION,ARCHITECTURES
archs_of = $(or $(call only_arch,$(1)),$(call since,$(1),$(ARCHS)))
CHOSEN := $(or $(VER),$(filter-out $(LEFT_OUT),$(VERSIONS)))

# --- Words that rules use. --------------------------------------------------------------------------------------------
comma := ,
say = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)';)
quoted = $(subst ','\'',$(1))
option = $(if $($(1)),--$(2) '$(call quoted,$($(1)))')# option,NAME,word: of a command, where NAME= is given
# A recipe writes $(part) and moves it to its path when it is complete: no interruption leaves half a file, and a make
# next to it in the same folder reads none.
ME := $(shell echo $$PPID)
part = $@.$(ME)
parts = trap 'rm -f $(part) $(part).d' EXIT;# begins such a recipe
whole = mv $(part) $@# ends it
update = cmp -s $(part) $@ || $(whole)# ends it where a file is to keep its time as long as its text stays
# Begins a recipe whose files have fixed names: a second make in this folder waits until the first one has ended.
one_make = exec 9>$(BUILD)/$(1).lock; \
	flock -n 9 || { echo 'make: waiting for another make that builds $@' >&2; flock 9; }
# What a full disk or a copy cut short looks up to date. So where an input cannot be read, this looks for it.
define name_broken  # $(1) objects, cubins, PTX
for f in $(1); do \
	if [[ $$f = *.ptx ]]; then [[ "$$(tail -c 9 $$f)" = *[}\"] ]]; else [ -z "$$(nm $$f 2>&1 >/dev/null)" ]; fi \
		|| { echo "make: $$f is cut short: delete it and run make again" >&2; broken=1; }; \
done
endef
define stamp  # $(1) file, $(2) text: a file that changes only when the text it holds changes
$(1): FORCE
	@mkdir -p $$(@D)
	@$$(parts) printf '%s\n' '$$(call quoted,$(2))' >$$(part); $$(update)
endef

PARTS := arguments toolkit harness libcuda judge version library hosts wasm inspect measure learn tests
WITH_GOALS := $(PARTS:%=make/%.mk) $(sort Makefile $(firstword $(MAKEFILE_LIST)))
# `make clean all`: jobs run side by side, and clean must end before others begin. So each goal has a make of its own.
ifneq ($(and $(filter clean distclean,$(MAKECMDGOALS)),$(word 2,$(MAKECMDGOALS))),)
include make/arguments.mk
.PHONY: one-by-one $(MAKECMDGOALS)
$(sort $(MAKECMDGOALS)): one-by-one ; @:
one-by-one:
	@for goal in $(MAKECMDGOALS); do $(MAKE) --no-print-directory $$goal; done
else
include $(PARTS:%=make/%.mk)

##@ Housekeeping
.PHONY: FORCE help help-all clean distclean
help help-all:  ## lists the goals that are typed most, or all with their variables
	@awk -v show=$(@:help-%=%) -f make/help.awk $(WITH_GOALS)
clean:  ## removes what was built, keeps .venv and records
	rm -rf build bin lib dist site logs/ptxas
distclean: clean  ##+ also removes .venv
	rm -rf $(VENV)
endif
