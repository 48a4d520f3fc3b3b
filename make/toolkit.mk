# The toolkit: pinned wheels in .venv, unless CUDA names another one. An nvcc on the PATH is ignored on purpose.

VENV := .venv
PY := $(VENV)/bin/python
SITE := $(VENV)/site
ZIG := $(VENV)/wasm
ZIG_CC := $(ZIG)/ziglang/zig cc
# A file for each group of pyproject.toml that is installed: its part of requirements.lock.
COMPILER := $(if $(CUDA),,$(VENV)/compiler.installed)
READY := $(VENV)/tests.installed
WHEEL := $(VENV)/wheel.installed
RUN = $(if $(wildcard $(PY)),$(PY),$(PYTHON))
TOOLKIT := $(or $(CUDA),$(VENV)/toolkit)
NVCC := $(TOOLKIT)/bin/nvcc
PTXAS := $(TOOLKIT)/bin/ptxas
CCCL = $(TOOLKIT)/include/cccl
export PATH := $(if $(CUDA),$(CUDA)/bin:)$(CURDIR)/$(VENV)/toolkit/bin:$(PATH)
export PYTHONPATH := $(CURDIR)
export LAUNCH KERNELS

ALL_NVCCFLAGS = -std=c++20 -O3 --use_fast_math -lineinfo -ptx -I. -frandom-seed=$(notdir $<) \
	$(if $(DUMP),-DFA_DEBUG) $(NVCCFLAGS)
# The PTX of a version is for the least architecture that it runs on.
compute = -arch=compute_$(or $(call only_arch,$(1)),$(call since,$(1),80))
ALL_PTXASFLAGS = -O3 -v --generate-line-info -warn-spills -warn-lmem-usage

$(eval $(call stamp,$(BUILD)/flags/nvcc,$$(NVCC) $$(ALL_NVCCFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/ptxas,$$(PTXAS) $$(ALL_PTXASFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/archs,$$(ARCHS)))
$(BUILD)/toolkit.h: $(BUILD)/flags/nvcc | $(COMPILER)
	@$(parts) printf '#define FL_TOOLKIT "%s"\n' "$$($(NVCC) --version | sed -n 's/.*, V//p')" >$(part); $(whole)

##@ Building
.PHONY: setup
setup: $(COMPILER) $(WHEEL) $(ZIG)/wasm.installed
setup: $(READY)  ## installs the toolkit and all Python packages into .venv; later builds need no network

# One make installs at a time; another one waits, and finds the group installed.
define group  # $(1) NAME.installed, $(2) what it is, $(3) environment, $(4) folder if not its own, $(5) last command
$(1): requirements.lock
	@mkdir -p $(VENV); exec 9>$(VENV)/lock; flock 9; \
	locked() { awk '/^# group / { on = $$$$3 == "$(basename $(notdir $(1)))" } on' $$<; }; \
	if cmp -s <(locked) $$@; then touch $$@; exit; fi; \
	echo '  SETUP    $(2) into $(or $(4),$(3)), once'; \
	$$(call environment,$(3)); $(if $(4),rm -rf $(4);) \
	$(3)/bin/python -m pip install -q --disable-pip-version-check --progress-bar off --no-deps --only-binary :all: \
		--require-hashes $(if $(4),--target $(4)) -r <(locked) || { $$(call not_installed,$(3)); exit 1; }; \
	$(if $(5),$(5);) locked >$$@.new; mv $$@.new $$@
endef
environment = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'make: $(PYTHON) is older than 3.11: set PYTHON=' >&2; exit 1; }; \
	$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(1) \
		|| { echo 'make: python3 has no venv module: install python3-venv' >&2; exit 1; }
not_installed = wheels=$$(sed -n '1s/.* for Python \(.*\) on .*/\1/p' $<); \
	version=$$($(1)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	[[ ", $$wheels," = *", $$version,"* ]] || echo "make: $< has wheels for Python $$wheels, and $(1) has" \
		"$$version: run \`make distclean\`, then set PYTHON=" >&2; \
	echo 'make: the packages cannot be reached; run make again to continue, or use an installed toolkit:' \
		'make CUDA=/usr/local/cuda $(MAKECMDGOALS)' >&2

$(eval $(call group,$(VENV)/compiler.installed,pinned CUDA toolkit (129 MB to fetch),$(VENV),,\
	ln -sfn $$$$(cd $(VENV) && echo lib/python3*/site-packages/nvidia/cu13) $(VENV)/toolkit))
$(eval $(call group,$(WHEEL),setuptools,$(VENV)))
$(eval $(call group,$(READY),Python packages of the analysis and the tests,$(VENV)))
$(eval $(call group,$(ZIG)/wasm.installed,zig and wasmtime (100 MB to fetch),$(VENV),$(ZIG)))
$(eval $(call group,$(SITE)/site.installed,Sphinx and playwright,$(SITE)))
