# What is wrong with a command line is said before anything is built. A variable that changes nothing is refused.

# The kernel that replaces a version that was removed; nothing for any other name.
replacement = $(subst /,.,$(shell awk -F'[(), "]+' -v version='$(call quoted,$(1))' \
	'/^REMOVED/ && length(version) == 3 && "v" $$2 <= version && version <= "v" $$3 { print $$4 }' \
	common/removed_versions.h))
unknown = $(error $(if $(2),$(1) was removed from the ladder: $(2) replaces it,no version '$(1)'; \
	there are: $(VERSIONS)))
known = $(foreach v,$(1),$(if $(filter $v,$(VERSIONS)),,$(call unknown,$v,$(call replacement,$v))))
need = $(foreach v,$(1),$(if $($v),,$(error $@ needs $v=, one of: $(VERSIONS))))$(foreach v,$(1),$(call known,$($v)))
$(call known,$(VER) $(A) $(B) $(filter v% b0%,$(MAKECMDGOALS)))

# A goal without a rule is said with those that are spelt nearly so. A name with / or . in it is a file's.
GOALS_OF := $(if $(MAKECMDGOALS),$(shell awk -v show=goals -f make/help.awk $(PARTS:%=make/%.mk) Makefile))
near = $(shell $(PYTHON) -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:]))' \
	'$(call quoted,$(1))' $(GOALS_OF))
$(foreach g,$(filter-out $(GOALS_OF) $(VERSIONS) Makefile,$(MAKECMDGOALS)),$(if $(findstring /,$g)$(findstring .,$g),,\
	$(foreach n,$(or $(call near,$g),none),$(error no goal '$g'; the nearest is $n; `make help` lists them))))

# What takes one version must not take the second one for another argument, after building both.
one = $(foreach v,$(1),$(if $(word 2,$($v)),$(error $v= is one version, not '$($v)')))
$(call one,A B $(if $(filter debug read,$(MAKECMDGOALS)),VER))

# PTX names source files between quotes, and so does the shell the folder.
$(foreach c,' " $$,$(if $(findstring $c,$(CURDIR)),$(error \
	the folder $(CURDIR) has a $c in its path, which ptxas or the shell cannot read: move it)))

# To make, a colon or a space in a file's name is its own sign.
FOLDERS := kernels/mma_sync kernels/wgmma
NAMED := $(FOLDERS:%=%/v%.cu) kernels/backward/b%.cu kernels/fp8/f%.cu
$(foreach s,$(SOURCES),$(if $(findstring :,$s)$(filter-out $(NAMED),$s),$(error \
	a kernel file is vNN_name.cu in $(subst $() , or ,$(FOLDERS)), with a-z, 0-9 and _ in its name: not '$s')))

# Two files of one number would give every file of that version two recipes.
$(foreach v,$(sort $(VERSIONS)),$(if $(word 2,$(filter $v,$(VERSIONS))),$(error \
	two files are $v: $(wildcard kernels/*/$v_*.cu); give one of them another number)))

$(if $(and $(CUDA),$(if $(wildcard $(CUDA)/bin/nvcc),,none)),$(error \
	CUDA=$(CUDA) holds no bin/nvcc: name the folder of a toolkit such as /usr/local/cuda, or leave CUDA= out))

# An architecture is a number from 80 on, for cp.async and mma.sync m16n8k16, perhaps with a or f behind.
wrong := $(shell tr ' ' '\n' <<<'$(call quoted,$(ARCHS))' | grep -vxE '(([89][0-9]|1[0-9][0-9])[af]?)?' | head -1)
$(if $(wrong),$(error ARCHS: '$(wrong)' is no architecture that the kernels run on; \
	expected numbers from 80 on, for example ARCHS="80 90" or ARCHS=90a))
$(if $(strip $(ARCHS)),,$(error ARCHS is empty; expected for example ARCHS="80 90"))

$(foreach v,$(sort $(filter $(LEFT_OUT),$(VER) $(A) $(B) $(MAKECMDGOALS))),$(error \
	$v is for sm_90a alone, as all that uses wgmma: ARCHS="$(ARCHS)" must have 90 in it))
$(if $(and $(LEFT_OUT),$(filter 0,$(MAKELEVEL))),$(if $(VER)$(filter v% b0%,$(MAKECMDGOALS)),,$(info \
	make: left out with ARCHS="$(ARCHS)", as they are for sm_90a alone: $(LEFT_OUT))))

# What needs a GPU says so where there is none, unless LAUNCH runs it elsewhere or make only prints (-n). Not so profile
# of saved files; autotune and compare have an answer without a GPU.
ON_GPU := bench gpu-check peak pipes peers $(if $(filter-out -%,$(filter %.csv,$(ARGS))),,profile)
ON_GPU := $(firstword $(filter $(ON_GPU),$(MAKECMDGOALS)))
ifeq ($(MAKELEVEL)$(LAUNCH)$(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),0)
NO_GPU := $(if $(ON_GPU),$(shell $(PYTHON) -m analysis.measure.driver))
$(if $(NO_GPU),$(error $(ON_GPU) needs a GPU, and there is none: $(NO_GPU); `make all` builds without one))
endif

# make takes any text for yes, also a 0. And the tools read bin/ and build/, not the folders of a variant.
$(foreach v,DEBUG DUMP,$(if $(filter-out 1,$($v)),$(error $v=$($v): expected $v=1, or no $v=)))
OF_NO_VARIANT := sass counts loop bound live map sass-diff why bench profile gpu-check peers compare autotune race \
	sanitize debug accept adopt
$(if $(VARIANT),$(foreach g,$(filter $(OF_NO_VARIANT),$(MAKECMDGOALS)),$(error $g takes no \
	$(if $(DEBUG),DEBUG=,DUMP=): it reads bin/ and build/, not bin$(VARIANT)/ and build$(VARIANT)/)))

# A variable is taken by all goals, or by those whose line in `make help-all` names it: A= or [A=].
GENERAL := CC CFLAGS NVCCFLAGS LDFLAGS ARCHS KERNELS CUDA PYTHON LAUNCH DEBUG DUMP BIN CI V
INSTEAD_CONFIG := ; KERNELS= chooses the instances that are built
INSTEAD_VER := ; name the versions themselves as goals

ifeq ($(MAKELEVEL),0)# goals that call make pass their variables on, needed or not
GIVEN := $(foreach v,$(filter-out $(GENERAL) MAKE%,$(.VARIABLES)),$(if $(filter command%,$(origin $v)),$v))
TAKES := $(if $(GIVEN),$(shell awk -v show=variables -f make/help.awk $(PARTS:%=make/%.mk) Makefile))# goal:VARIABLE
takers = $(patsubst %:$(1),%,$(filter %:$(1),$(TAKES)))
$(foreach v,$(GIVEN),\
	$(if $(call takers,$v),,$(error no goal takes $v=))\
	$(if $(filter $(call takers,$v),$(MAKECMDGOALS)),,$(error \
		$(or $(MAKECMDGOALS),help) takes no $v=; what takes it: $(call takers,$v)$(INSTEAD_$v))))
endif
