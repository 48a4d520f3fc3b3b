# What is wrong with a command line is said before anything is built. A variable that changes nothing is refused.

# The kernel that replaces a version that was removed; nothing for any other name.
replacement = $(subst /,.,$(shell awk -F'[(), "]+' -v version='$(call quoted,$(1))' \
	'/^REMOVED/ && length(version) == 3 && "v" $$2 <= version && version <= "v" $$3 { print $$4 }' \
	common/removed_versions.h))
# A word that names no version or goal is rejected with those that are spelled nearly so.
near = $(shell $(PYTHON) make/nearest.py '$(call quoted,$(1))' $(2))
ranges = $(strip $(foreach l,v b f,$(if $(filter $l%,$(VERSIONS)),$(firstword $(filter $l0%,$(VERSIONS))) to \
	$(lastword $(filter $l%,$(VERSIONS)))$(comma))) $(ATTENTION))
unknown = $(error $(if $(2),$(1): was removed from the ladder; use $(2),$(1): no such version$(if \
	$(call near,$(1),$(VERSIONS)),; did you mean $(firstword \
	$(call near,$(1),$(VERSIONS)))? Versions,; versions) are \
	$(ranges)))
known = $(foreach v,$(1),$(if $(filter $v,$(VERSIONS)),,$(call unknown,$v,$(call replacement,$v))))
EXAMPLE_A := the version before the step, such as A=v10 B=v11
EXAMPLE_B := the version after the step, such as A=v10 B=v11
EXAMPLE_VER := a version, such as VER=v07
need = $(foreach v,$(1),$(if $($v),,$(error $@ needs $v=, $(EXAMPLE_$v))))$(foreach v,$(1),$(call known,$($v)))
IS_VERSION = $(filter v% b0% f0% V% B0% F0%,$(1))# what a user may mean as one
$(call known,$(VER) $(A) $(B) $(filter-out %.mk,$(call IS_VERSION,$(MAKECMDGOALS))))

# Goals that were removed, each with its replacement; _ means a space.
MOVED := why:./fl_why_v10_v11 configs:./fl_configs_--version_v07_--set_all check-tools:./fl_check-tools_FILE \
	corpus:./fl_corpus_FOLDER logs:./fl_demangle_FILE notebooks:./fl_notebooks_--write \
	sanitize:./fl_sanitize_--versions_v07 ptx:make_build/v07/v07.ptx wasm:make_build/wasm/emulator.wasm \
	fuzz:make_build/tests-san/test_fuzz_and_start_that \
	$(foreach c,loop bound counts live predict map,$c:./fl_$c_v07) $(foreach c,peak pipes peers gate,$c:./fl_$c) \
	$(foreach c,race profile autotune,$c:./fl_$c_--versions_v07) compare:./fl_compare_v10_v11 \
	exercises:./fl_exercises new:./fl_new_--parent_v16_--name_idea \
	$(foreach g,peer-fa3 peer-fa3-backward peer-fa3-serving,$g:make_-f_harness/peers/peers.mk_$g_FA3=FOLDER) \
	$(foreach g,suite suite-fp8 faults-on-gpu bench-emu,$g:make_-f_emulator/suite/suite.mk_$g)
moved = $(subst _, ,$(patsubst $(1):%,%,$(filter $(1):%,$(MOVED))))

# A goal without a rule is said with those that are spelled nearly so. A name with / or . in it is a file's.
GOALS_OF := $(if $(MAKECMDGOALS),$(shell awk -v show=goals -f make/help.awk $(WITH_GOALS)))
$(foreach g,$(filter-out $(GOALS_OF) $(VERSIONS) Makefile,$(MAKECMDGOALS)),$(if $(findstring /,$g)$(findstring .,$g),,\
	$(if $(call moved,$g),$(error $g: is no longer a goal; type `$(call moved,$g)`))$(foreach n,$(or \
	$(call near,$g,$(GOALS_OF) $(VERSIONS)),-),$(error $g: no such goal$(if \
	$(filter-out -,$n),; did you mean $(firstword $n)? `make help`,; `make help`) lists all))))

# A wrong number is rejected before anything is built.
EXERCISES := $(patsubst 0%,%,$(foreach f,$(wildcard exercises/[0-9][0-9]_*),$(firstword $(subst _, ,$(notdir $f)))))
$(if $(filter exercise,$(MAKECMDGOALS)),$(if $(filter $(EXERCISES) $(patsubst %,0%,$(EXERCISES)),$(N)),,$(error \
	$(if $(N),N=$(N): no such exercise,exercise needs N=); N is 1 to $(words $(EXERCISES)); \
	./fl exercises lists them)))

# What takes one version must not take the second one for another argument, after building both.
one = $(foreach v,$(1),$(if $(word 2,$($v)),$(error $v='$($v)': must be a single version)))
$(call one,A B $(if $(filter debug read,$(MAKECMDGOALS)),VER))

$(if $(filter judge,$(MAKECMDGOALS)),$(if $(and $(PROBLEM),$(SUBMISSION)),,$(error judge needs PROBLEM= and \
	SUBMISSION=, such as PROBLEM=softmax SUBMISSION=examples/judge/softmax.cu; `./fl judge --help` lists them)))

# PTX names source files between quotes, and so does the shell the folder.
$(foreach c,' " $$,$(if $(findstring $c,$(CURDIR)),$(error \
	$(CURDIR): the path contains $c, which ptxas or the shell cannot read; move the folder)))

# To make, a colon or a space in a file's name is its own sign.
FOLDERS := kernels/mma_sync kernels/wgmma
NAMED := $(FOLDERS:%=%/v%.cu) kernels/backward/b%.cu kernels/fp8/f%.cu
$(foreach s,$(SOURCES),$(if $(findstring :,$s)$(filter-out $(NAMED),$s),$(error \
	$s: must be vNN_name.cu in $(subst $() , or ,$(FOLDERS)), with a name of a-z, 0-9 and _; rename it)))

# Two files of one number would give every file of that version two recipes.
$(foreach v,$(sort $(VERSIONS)),$(if $(word 2,$(filter $v,$(VERSIONS))),$(error \
	$v: two files have this number, $(wildcard kernels/*/$v_*.cu); renumber one of them)))

$(if $(and $(CUDA),$(if $(wildcard $(CUDA)/bin/nvcc),,none)),$(error \
	CUDA=$(CUDA): contains no bin/nvcc; name a toolkit folder such as /usr/local/cuda, or remove CUDA=))

# An architecture is a number from 80 on, for cp.async and mma.sync m16n8k16, perhaps followed by a or f.
wrong := $(shell tr ' ' '\n' <<<'$(call quoted,$(ARCHS))' | grep -vxE '(([89][0-9]|1[0-9][0-9])[af]?)?' | head -1)
$(if $(wrong),$(error ARCHS: '$(wrong)': must be a number from 80 on; \
	write for example ARCHS="80 90" or ARCHS=90a))
$(if $(strip $(ARCHS)),,$(error ARCHS: must not be empty; write for example ARCHS="80 90"))

$(foreach v,$(sort $(filter $(LEFT_OUT),$(VER) $(A) $(B) $(MAKECMDGOALS))),$(error \
	$v: needs sm_$(call only_arch,$v), because it uses $(if \
	$(filter $v,$(GEFORCE)),mma.sync with block_scale; add 120,wgmma; add 90) to ARCHS="$(ARCHS)"))
left_out = $(foreach one,$(firstword $(filter $(2),$(LEFT_OUT))),$(info \
	make: ARCHS="$(ARCHS)" leaves out these versions, which need sm_$(1): $(filter $(2),$(LEFT_OUT))))
$(if $(filter 0,$(MAKELEVEL)),$(if $(VER)$(filter v% b0%,$(MAKECMDGOALS)),,$(call \
	left_out,90a,$(HOPPER))$(call left_out,120a,$(GEFORCE))))

# What needs a GPU says so where there is none, unless LAUNCH runs it elsewhere or make only prints (-n).
ON_GPU := $(firstword $(filter bench gpu-check,$(MAKECMDGOALS)))
ifeq ($(MAKELEVEL)$(LAUNCH)$(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),0)
NO_GPU := $(if $(ON_GPU),$(shell $(PYTHON) -m analysis.measure.driver))
$(if $(NO_GPU),$(error $(ON_GPU): needs a GPU, but $(NO_GPU); `make all` builds without one))
endif

$(if $(filter-out all,$(GPUS)),$(error GPUS=$(GPUS): must be all; without GPUS= the library is for ARCHS="$(ARCHS)"))

# make takes any text for yes, also a 0. And the tools read bin/ and build/, not the folders of a variant.
$(foreach v,DEBUG DUMP,$(if $(filter-out 1,$($v)),$(error $v=$($v): must be 1; remove $v= to build without it)))
OF_NO_VARIANT := sass sass-diff bench gpu-check debug accept adopt
$(if $(VARIANT),$(foreach g,$(filter $(OF_NO_VARIANT),$(MAKECMDGOALS)),$(error $g takes no \
	$(if $(DEBUG),DEBUG=,DUMP=): it reads bin/ and build/, not bin$(VARIANT)/ and build$(VARIANT)/)))

# A variable is taken by all goals, or by those whose line in `make help-all` names it: A= or [A=].
GENERAL := CC CFLAGS NVCCFLAGS LDFLAGS ARCHS KERNELS CUDA PYTHON LAUNCH DEBUG DUMP BIN CI V
INSTEAD_CONFIG := ; KERNELS= chooses the instances that are built
INSTEAD_VER := ; name the versions themselves as goals

ifeq ($(MAKELEVEL),0)# goals that call make pass their variables on, needed or not
GIVEN := $(foreach v,$(filter-out $(GENERAL) MAKE%,$(.VARIABLES)),$(if $(filter command%,$(origin $v)),$v))
TAKES := $(if $(GIVEN),$(shell awk -v show=variables -f make/help.awk $(WITH_GOALS)))# goal:VARIABLE
takers = $(patsubst %:$(1),%,$(filter %:$(1),$(TAKES)))
$(foreach v,$(GIVEN),\
	$(if $(call takers,$v),,$(error $v=: no goal accepts it; `make help-all` lists the variables of each goal))\
	$(if $(filter $(call takers,$v),$(MAKECMDGOALS)),,$(error \
		$v=: $(or $(MAKECMDGOALS),help) does not accept it; these goals do: $(call takers,$v)$(INSTEAD_$v))))
endif

# What takes minutes says so before it begins, where the file that it makes is not there yet. Times are of a processor.
announce = $(if $(filter $(1),$(MAKECMDGOALS)),$(if $(wildcard $(2)),,$(info make: $(1) takes about $(3); \
	each step is printed as it starts)))
ifeq ($(MAKELEVEL)$(VER)$(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),0)
$(call announce,wheel,lib/libflashladder.so.1,5.5 minutes of processor time and 600 MB in build/)
$(call announce,site,site/index.html,2 minutes of processor time and 60 MB beyond what make check builds)
$(call announce,regs,$(BUILD)/regs$(SET),5 minutes of processor time and 160 MB in build/)
endif
ifeq ($(MAKELEVEL),0)
$(call announce,adopt,none,1.5 minutes of processor time for each version)
endif
