# The toolkit: pinned wheels in .venv, unless CUDA names another one. An nvcc on the PATH is ignored on purpose.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/ready
MUTATORS := $(VENV)/mutators/ready
SITE := $(VENV)/site
RUN = $(if $(wildcard $(PY)),$(PY),$(PYTHON))
TOOLKIT := $(or $(CUDA),$(VENV)/toolkit)
NVCC := $(TOOLKIT)/bin/nvcc
PTXAS := $(TOOLKIT)/bin/ptxas
export PATH := $(if $(CUDA),$(CUDA)/bin:)$(CURDIR)/$(VENV)/toolkit/bin:$(PATH)
export PYTHONPATH := $(CURDIR)
export LAUNCH KERNELS

ALL_NVCCFLAGS = -std=c++20 -O3 --use_fast_math -lineinfo -ptx -I. \
	$(if $(DUMP),-DFA_DEBUG) $(NVCCFLAGS)
# The PTX of a version is for the least architecture that it runs on.
compute = -arch=compute_$(if $(filter $(1),$(HOPPER)),90a,80)
ALL_PTXASFLAGS = -O3 -v --generate-line-info -warn-spills -warn-lmem-usage

$(eval $(call stamp,$(BUILD)/flags/nvcc,$$(NVCC) $$(ALL_NVCCFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/ptxas,$$(PTXAS) $$(ALL_PTXASFLAGS)))
$(eval $(call stamp,$(BUILD)/flags/archs,$$(ARCHS)))
$(BUILD)/toolkit.h: $(BUILD)/flags/nvcc | $(if $(CUDA),,$(READY))
	@printf '#define FL_TOOLKIT "%s"\n' "$$($(NVCC) --version | sed -n 's/.*, V//p')" > $@

##@ Building
.PHONY: setup
setup: $(READY) $(MUTATORS)  ##+ installs toolkit and Python packages into .venv, for a machine that will be offline

$(READY): requirements.txt
	@echo '  SETUP    pinned CUDA toolkit and Python packages into $(VENV): 300 MB to fetch, 900 MB on disk, once'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'make: $(PYTHON) is older than 3.11: set PYTHON=' >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) \
		|| { echo 'make: python3 has no venv module: install python3-venv' >&2; exit 1; }
	@$(PY) -m pip install --disable-pip-version-check --progress-bar off -r requirements.txt \
		| awk '/Downloading|Installing/ { print "           " $$1, $$2, $$3, $$4; fflush() }' || { \
		echo 'make: the packages cannot be reached; run make again to continue, or use an installed toolkit:' \
			'make CUDA=/usr/local/cuda $(MAKECMDGOALS)' >&2; exit 1; }
	@ln -sfn $$(cd $(VENV) && echo lib/python3*/site-packages/nvidia/cu13) $(VENV)/toolkit
	@touch $@

# Without what these packages require for other uses of them, such as their own user interfaces.
$(MUTATORS): requirements-mutators.txt | $(READY)
	$(call say,SETUP,mutators and coverage.py into $(@D))rm -rf $(@D) && $(PY) -m pip install -q \
		--disable-pip-version-check --progress-bar off --no-deps --target $(@D) -r $< || { \
		echo 'make: the packages of requirements-mutators.txt cannot be reached; run make again' >&2; exit 1; }
	@touch $@

# An environment of its own: no other goal needs it, and its packages bring many others.
$(SITE)/ready: requirements-site.txt | $(READY)
	$(call say,SETUP,Sphinx and playwright into $(@D))rm -rf $(@D) \
		&& $(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install -q --disable-pip-version-check \
		--progress-bar off -r $< || { \
		echo 'make: the packages of requirements-site.txt cannot be reached; run make again' >&2; exit 1; }
	@touch $@
