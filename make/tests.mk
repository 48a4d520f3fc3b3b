# Tests: every C test program twice, plain and under the sanitizers; its output is a file that pytest reads.
#
#     {emulator,runtime,harness}/tests/test_*.c ─ cc ─► build/tests/test_* ─ run ─► build/tests/test_*.tap
#     library/tests/test_*.c likewise
#     the same with the sanitizers ─► build/tests-san/test_*.tap          *.tap, test_*.py ─ pytest

SAN := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
$(eval $(call stamp,$(BUILD)/flags/san,$$(SAN)))
C_TESTS := $(wildcard $(addsuffix /tests/test_*.c,emulator runtime harness library))
TAPS := $(foreach t,$(C_TESTS:.c=),$(BUILD)/tests/$(notdir $t).tap $(BUILD)/tests-san/$(notdir $t).tap)
TEST_CODE := $(call folder,v01)/code.o $(call folder,v01)/about.o $(BUILD)/device/code.o
vpath test_%.c emulator/tests runtime/tests harness/tests library/tests
vpath bench_%.c emulator/bench
vpath gpu_%.c harness/device
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(OBJECTS) $(TEST_CODE)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $^ $(ALL_LDLIBS) $(linked)
$(BUILD)/tests/bench_emu.%: $(BUILD)/tests/bench_emu.o $(OBJECTS) $(BUILD)/%/code.o $(BUILD)/%/about.o \
		$(BUILD)/device/code.o
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $^ $(ALL_LDLIBS) $(linked)
# Tests of the library call the shared object, which under the sanitizers also exports what it otherwise hides.
WITH_LIBRARY = -Llib -lflashladder -Wl,-rpath,'$$ORIGIN/$(if $(VARIANT),../)../../lib' $(ALL_LDLIBS)
WITH_SAN_LIBRARY = -L$(BUILD)/san -lflashladder -Wl,-rpath,'$$ORIGIN/../san' $(ALL_LDLIBS)
LIBRARY_TESTS := $(notdir $(basename $(wildcard library/tests/test_*.c)))
OF_SHARED_OBJECT := $(filter-out test_choice,$(LIBRARY_TESTS))
$(BUILD)/tests/test_choice: $(LIBRARY) $(LIBRARY_CODE)# it calls what the shared object hides
$(OF_SHARED_OBJECT:%=$(BUILD)/tests/%): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(OBJECTS) $(TEST_CODE) \
		lib/libflashladder.so
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(WITH_LIBRARY) $(linked)
$(BUILD)/san/libflashladder.so: $(patsubst $(BUILD)/%,$(BUILD)/san/%,$(LIBRARY) $(IN_LIBRARY)) $(LIBRARY_CODE)
	$(call say,LINK,$@)$(parts) $(CC) $(SAN) $(LDFLAGS) -shared -o $(part) $^ $(ALL_LDLIBS) \
		-Wl,-soname,$(@F) $(linked)
$(LIBRARY:$(BUILD)/%=$(BUILD)/san/%): private SAN += -fvisibility=default
$(LIBRARY_TESTS:%=$(BUILD)/tests-san/%): $(BUILD)/tests-san/%: $(BUILD)/tests-san/%.o \
		$(OBJECTS:$(BUILD)/%=$(BUILD)/san/%) $(TEST_CODE) $(BUILD)/san/libflashladder.so
	$(call say,LINK,$@)$(parts) $(CC) $(SAN) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(WITH_SAN_LIBRARY) $(linked)
# Run by hand, where there is a GPU: it compares the library with the harness's own launches of attention/wgmma.
$(BUILD)/tests/gpu_library: $(BUILD)/tests/gpu_library.o $(OBJECTS) $(call folder,attention.wgmma)/code.o \
		$(call folder,attention.wgmma)/about.o $(call device_of,attention.wgmma) lib/libflashladder.so
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(WITH_LIBRARY) $(linked)
$(BUILD)/tests/libcuda.so.1: harness/tests/faulty_cuda.c $(EMULATED)/libcuda.so.1 \
		$(wildcard harness/tests/*.h harness/*.h runtime/*.h) $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(ALL_CFLAGS) -MF $(part).d -shared -fvisibility=default -Wl,-soname,$(@F) \
		-o $(part) $< $(ALL_LDLIBS) $(linked)
$(BUILD)/tests/test_gpu.tap $(BUILD)/tests-san/test_gpu.tap: $(BUILD)/tests/libcuda.so.1
$(BUILD)/tests-san/%: $(BUILD)/tests-san/%.o $(OBJECTS:$(BUILD)/%=$(BUILD)/san/%) $(TEST_CODE)
	$(call say,LINK,$@)$(parts) $(CC) $(SAN) $(LDFLAGS) -o $(part) $^ $(ALL_LDLIBS) $(linked)
$(BUILD)/tests/%.o: %.c $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile)
$(BUILD)/tests-san/%.o: %.c $(BUILD)/flags/cc $(BUILD)/flags/san
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,$(SAN))
$(BUILD)/san/%.o: %.c $(BUILD)/flags/cc $(BUILD)/flags/san
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,$(SAN) -I$(BUILD))
# A failing program does not stop make: pytest reads its exit status from the last line. A .tap that is there is whole.
TEST_SECONDS := 1800# for what hangs: the longest program takes 20 s alone on a core
%.tap: %
	$(call say,TEST,$*)$(parts) status=0; \
		timeout --foreground -k 10 $(TEST_SECONDS) ./$< >$(part) 2>&1 || status=$$?; \
		[ $$status -ne 124 ] || echo '# stopped after $(TEST_SECONDS) s: it hangs' >>$(part); \
		echo "# exit $$status" >>$(part); $(whole)

-include $(wildcard $(addprefix $(BUILD)/,tests/*.d tests-san/*.d san/harness/*.d san/runtime/*.d san/emulator/*/*.d \
	san/library/*.d))

CUDA12 := build/cuda12/cuda12.installed# whose cubins the tools read too
OLDEST := build/oldest/oldest.installed# the oldest toolkit that CUDA= may name

##@ Testing
.PHONY: check check-anywhere check-frameworks check-long check-site lint format
IN_CHECK := not long and not gpu and not site
# Byte code goes below build/, even if the environment disables it next to the sources: without any, each of some
# thousand processes compiles what it imports.
check check-long check-anywhere: export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
check check-long check-anywhere: export PYTHONDONTWRITEBYTECODE :=
# Short runs of the emulator spent a quarter of their time on page faults: with large pages there are few. A glibc older
# than 2.35 knows no such word and goes on without. Not in check: memory that is hardly touched then takes all its room.
check-long: export GLIBC_TUNABLES := $(if $(GLIBC_TUNABLES),$(GLIBC_TUNABLES):)glibc.malloc.hugetlb=1
check-long check-anywhere: lib judge-tools | $(WHEEL)
check-long check-anywhere: | $(READY)
check-anywhere: $(WASM_FILES)
ifeq ($(VER),)
check: judge-tools $(WASM_FILES) | $(WHEEL)
check: lint all emu-lib lib $(TAPS)  ## runs all tests that need no GPU, or in two minutes those of a version: [VER=]
	@$(MAKE) --no-print-directory DUMP=1 v01
	$(PY) -m pytest -n 2 --dist worksteal -m "$(IN_CHECK)"
else
OF_VERSION := (each_version or not long) and not gpu and not site
check: $(VER) bin/ptxrun emu-lib
	@$(VENV)/bin/clang-format --dry-run -Werror $(foreach v,$(VER),$(wildcard kernels/*/$v_*.cu))
	$(PY) -m pytest -n 2 --dist worksteal analysis/tests emulator/tests harness/tests -m "$(OF_VERSION)" \
		-k "whole_ladder $(VER:%=or %)"
endif
check-long: $(BUILD)/tests/test_special $(BUILD)/tests-san/test_fuzz
check-long: all emu-lib  ##+ runs the tests that take minutes, with other random inputs
	@$(MAKE) --no-print-directory $(CUDA12) || echo 'make: no ptxas of CUDA 12: its tests are skipped' >&2
	@$(MAKE) --no-print-directory $(OLDEST) || echo 'make: no toolkit 13.0: its tests are skipped' >&2
	@$(MAKE) --no-print-directory DUMP=1 v01
	SECONDS_TO_FUZZ=60 $(BUILD)/tests-san/test_fuzz
	$(PY) -m pytest -n 2 --dist worksteal -m "long or hypothesis" --hypothesis-profile=random
# With the C programs run again. make's own lines say with which seed.
check-anywhere: all emu-lib $(TAPS)  ##+ runs check as on other machines: BUSY= loops in parallel, order of SEED=
	@$(MAKE) --no-print-directory DUMP=1 v01
	@rm -f $(TAPS)
	@bash make/anywhere.sh $(or $(BUSY),4) $(MAKE) --no-print-directory $(TAPS)
	bash make/anywhere.sh $(or $(BUSY),4) $(PY) -m pytest -n 2 --dist worksteal -m "$(IN_CHECK)" \
		--shuffle $(or $(SEED),$(shell echo $$RANDOM))
check-site: site report $(WASM_FILES) lib  ##+ checks the pages in browsers, light and dark: build/screens/; WebAssembly
	PYTHONPATH=$(CURDIR):$(wildcard $(SITE)/lib/python3*/site-packages) \
		$(PY) -m pytest -rs -n 2 analysis/tests/site harness/tests/test_wasm.py python/tests/test_wheel_hosts.py
# In an environment of its own, as these packages take gigabytes. A test that is skipped there is named.
FRAMEWORKS := build/frameworks
FRAMEWORK_TESTS := $(filter-out %_fake.py,$(wildcard \
	$(patsubst %,python/tests/test_%*.py,torch $(if $(TORCH),,jax transformers framework))))
IN_FRAMEWORKS := $(if $(TORCH),build/torch-$(TORCH),$(FRAMEWORKS))
check-frameworks: lib $(IN_FRAMEWORKS)/frameworks.installed  ##+ tests PyTorch, JAX and transformers: [TORCH=2.4]
	$(IN_FRAMEWORKS)/bin/python -m pytest -rs -n 2 --dist worksteal $(FRAMEWORK_TESTS)
build/torch-%/frameworks.installed: requirements.lock
	$(call say,SETUP,PyTorch $* into $(@D))$(PYTHON) -m venv --clear $(@D) && $(@D)/bin/python -m pip install -q \
		--disable-pip-version-check --progress-bar off --only-binary :all: 'torch==$*.*' setuptools \
		$$(grep -oE '^(numpy|pytest|pytest-xdist|hypothesis)==[^ ]+' $< | sort -u)
	@touch $@
$(eval $(call group,$(FRAMEWORKS)/frameworks.installed,PyTorch$$(comma) JAX and transformers,$(FRAMEWORKS)))
$(eval $(call group,$(CUDA12),ptxas of CUDA 12,$(VENV),$(dir $(CUDA12))))
$(eval $(call group,$(OLDEST),toolkit 13.0,$(VENV),$(dir $(OLDEST))))

C_FILES := $(EMULATOR_C) $(DRIVER_C) $(wildcard emulator/judge/*.c emulator/wasm/*.c emulator/bench/*.c \
	emulator/tests/*.c runtime/*.c runtime/tests/*.c harness/*.c harness/device/*.c harness/tests/*.c \
	library/*.c library/tests/*.c examples/*.c analysis/ladder/*.c)
HEADERS := $(wildcard common/*.h common/tests/*.h runtime/*.h harness/*.h harness/device/*.h harness/tests/*.h \
	emulator/*.h emulator/*/*.h library/*.h)
FORMATTED := $(C_FILES) $(HEADERS) $(wildcard harness/browser/*.c emulator/wasm/include/*.h include/*.h common/*.cuh \
	harness/device/*.cu emulator/suite/*.cu harness/peers/*.[ch]* kernels/*/*.cu kernels/*/*.cuh)
TIDY := $(patsubst %.c,build/lint/%.tidy,$(filter-out library/version.c,$(C_FILES)))# that one wants names from make
lint: $(READY) $(TIDY)  ##+ runs clang-format, clang-tidy, ruff and mypy
	@printf '%s\n' $(FORMATTED) | xargs -n 32 -P "$$(nproc)" $(VENV)/bin/clang-format --dry-run -Werror
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check . && $(PY) -m mypy
build/lint/%.tidy: %.c .clang-tidy | $(READY) build/revision.h build/toolkit.h build/v01/about.h
	@mkdir -p $(@D)
	$(call say,TIDY,$<)$(parts) $(VENV)/bin/clang-tidy --quiet $< -- -std=c11 -D_GNU_SOURCE -I. -Iinclude -Ibuild \
		-Ibuild/v01 $(CUDA_H) >$(part) 2>&1 || { cat $(part) >&2; exit 1; }; $(whole)
format: $(READY)  ## rewrites C, CUDA and Python files in the house style
	$(VENV)/bin/clang-format -i $(FORMATTED)
	$(VENV)/bin/ruff check -q --fix . && $(VENV)/bin/ruff format -q .
EDITOR_ENTRY := {"directory": "$(CURDIR)", "file": "&", "command": "cc -std=c11 -D_GNU_SOURCE -I. -c &"}
compile_commands.json:  ##+ writes the compile commands for clangd and editors
	@printf '%s\n' $(C_FILES) | sed 's|.*|$(EDITOR_ENTRY)|' | paste -sd, | sed 's/^/[/; s/$$/]/' >$@
