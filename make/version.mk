# A version, from its kernel file to its executable and its records. Every arrow is one rule below.
#
#     kernels/*/v07_*.cu ─ instances ─► build/v07/instances.cuh, about.h
#     kernels/mma_sync/v07_*.cu + instances.cuh ─ nvcc ─► build/v07/v07.ptx
#     v07.ptx ─ ptxas ─► build/v07/sm_80.cubin + logs/ptxas/v07.sm_80.log, for each architecture
#     v07.ptx + cubins ─ embed ─► build/v07/code.o
#     about.h ─ cc ─► build/v07/about.o
#     code.o + about.o + build/{harness,runtime,emulator}/… ─ cc ─► bin/v07
#     log + cubin ─ regs ─► build/regs/v07.sm_80.csv    log ─ demangle ─► logs/ptxas/v07.sm_80.demangled.log
#     cubin ─ nvdisasm ─► sass/v07.sm_90.sass

GENERATOR := lib/libflconfig.so $(addprefix analysis/,__init__.py errors.py files.py table.py \
	$(addprefix ladder/,__init__.py c_source.py checks.py claims.py config.py headers.py instances.py \
	removed.py)) common/removed_versions.h

# The default instances of the pinned toolkit are those that regs/ and sass/ record. What other sets, variants and
# toolkits yield stays below build/, so that no set overwrites another.
OWN := $(if $(SET)$(VARIANT)$(CUDA),,yes)
folder = $(BUILD)/$(1)$(SET)
log = $(if $(SET)$(VARIANT),$(call folder,$(1))/$(1).sm_$(2).log,logs/ptxas/$(1).sm_$(2).log)
regs_of = $(BUILD)/regs$(SET)/$(1).sm_$(2).csv
# sass/ keeps the code of the GPUs that measured, and of v00 also the code that its claim is about.
listing = $(if $(and $(OWN),$(filter 90 90a,$(2))$(wildcard sass/$(1).sm_$(2).sass)),sass,$(BUILD)/sass$(SET))/$(strip \
	)$(1).sm_$(2).sass
each = $(foreach v,$(CHOSEN),$(foreach a,$(call archs_of,$v),$(call $(1),$v,$a)))# each,WORD: of all chosen versions

# instances.stamp represents both files: the generator leaves a file alone whose text stays, so their times do not tell.
# The stamp `source` changes with the kernel file's name: a renamed file keeps its time.
define instances  # $(1) version, $(2) source, $(3) folder
$(call stamp,$(3)/source,$(2))
$(3)/instances.stamp: $(2) $(3)/source $(GENERATOR)
	@$(RUN) -m analysis instances $(2) --set '$$(call quoted,$$(KERNELS))' --out $(3)
	@touch $$@
$(3)/instances.cuh $(3)/about.h: $(3)/instances.stamp ; @:
endef

# The same sources give the same bytes in every folder. Files are named by their path from here: nvcc takes that of the
# folder from PWD if it names the folder, as this one does in every process. Of local functions' names, _INTERNAL_ and a
# checksum of the path in hexadecimal digits, which debug sections spell in ASCII, the checksum becomes 0.
compile_cuda = $(parts) PWD=/proc/self/cwd $(NVCC) $(ALL_NVCCFLAGS) $(1) -MD -MP -MT $@ -MF $(part).d -o $(part) $<; \
	sed -Ei 's|"/proc/self/cwd/(\./)*|"|; s/_INTERNAL_[0-9a-f]{8}_/_INTERNAL_00000000_/g; \
		s/(95,73,78,84,69,82,78,65,76,95)(,[0-9]+){8},95/\1,48,48,48,48,48,48,48,48,95/g' $(part)
whole_ptx = mv $(part).d $(basename $@).d; $(whole)

# -MP gives every header an empty rule, so that one may go; the kernel file, which may be renamed, gets its own here.
define nvcc  # $(1) version, $(2) source, $(3) folder
$(3)/$(1).ptx: $(2) $(3)/source $(3)/instances.cuh $(BUILD)/flags/nvcc | $(COMPILER)
	$$(call say,NVCC,$$@)$$(call compile_cuda,$(call compute,$(1)) -I$(3)); echo '$(2):' >>$$(part).d; $$(whole_ptx)
endef

# `&:` says that one run makes both files. ptxas does not mind a full disk below its log: cat does. Advisories C75xx are
# errors: ptxas serialized wgmma or dropped setmaxnreg. Code for a debugger need not be fast.
define ptxas  # $(1) folder, $(2) PTX file, $(3) architecture, $(4) log
$(1)/sm_$(3).cubin $(4) &: $(1)/$(2) $(BUILD)/flags/ptxas
	@mkdir -p $(dir $(4))
	$$(call say,PTXAS,$(1)/sm_$(3).cubin)cubin=$(1)/sm_$(3).cubin.$(ME) log=$(4).$(ME); \
	trap "rm -f $$$$cubin $$$$log" EXIT; \
	$(PTXAS) $(ALL_PTXASFLAGS) -arch=sm_$(3) -o $$$$cubin $$< 2>&1 | cat >$$$$log \
		|| { cat $$$$log >&2; $$(call name_broken,$$<); exit 1; }; mv $$$$log $(4); \
	$(if $(DEBUG),,! grep -q 'info.*C75[0-9]' $(4) || $(RUN) -m analysis losses $(4) --exit-code >&2;) \
	mv $$$$cubin $(1)/sm_$(3).cubin
endef

define embed  # $(1) object, $(2) folder of PTX and cubins, $(3) PTX file, $(4) name of the table, $(5) architectures
$(1): runtime/code.S $(2)/$(3) $(5:%=$(2)/sm_%.cubin) $(BUILD)/flags/archs $(BUILD)/flags/cc
	$$(call say,EMBED,$$@)$$(parts) $$(call name_broken,$(2)/$(3) $(5:%=$(2)/sm_%.cubin)); [ ! "$$$${broken-}" ]; \
	$(CC) -c -DIMAGES=$(4)s -DIMAGE_COUNT=$(4)_count -DPTX='"$(3)"' \
		-DARCHS=$$$$(echo $(5) | tr ' ' ,) -Wa,-I$(2) -o $$(part) $$<; $$(whole)
endef

device_of = $(BUILD)/device/$(addsuffix /,$(call only_arch,$(1)))code.o

# The stamp set.vNN changes when bin/vNN is to hold another set of instances.
# make starts jobs in the order of the list: nvcc among the objects, once it has the instances, and ptxas at the end.
define link  # $(1) version, $(2) source, $(3) folder
$(call stamp,$(BUILD)/flags/set.$(1),$(3))
$(3)/about.o: harness/about.c $(3)/about.h $(BUILD)/revision.h $(BUILD)/toolkit.h $(BUILD)/flags/cc
	$$(call say,CC,$$@)$$(call compile,$(if $(DUMP),-DFA_DEBUG) -I$(3) -I$(BUILD))
$(BIN)/$(1): $(3)/about.o $(call device_of,$(1)) $(BUILD)/harness/main.o $(3)/instances.cuh $(EMULATOR) \
		$(3)/code.o $(HARNESS) $(RUNTIME) $(BUILD)/flags/ld $(BUILD)/flags/set.$(1)
	@mkdir -p $(BIN)
	$$(call say,LINK,$$@)$$(parts) $(CC) $(LDFLAGS) -o $$(part) $$(filter %.o,$$^) $(ALL_LDLIBS) $$(linked)
endef

define records  # $(1) version, $(2) architecture, $(3) cubin, $(4) log
$(basename $(4)).demangled.log: $(4)
	@$(RUN) -m analysis demangle $$< -o $$@
$(call regs_of,$(1),$(2)): $(3) $(4)
	@mkdir -p $$(@D)
	@$(RUN) -m analysis regs --version $(1) --arch sm_$(2) --log $(4) --cubin $(3) --csv -o $$@
$(call listing,$(1),$(2)): $(3)
	@mkdir -p $$(@D)
	$$(call say,NVDISASM,$$@)$(RUN) -m analysis sass $(1) --arch sm_$(2) \
		$(if $(SET),--config '$$(call quoted,$$(KERNELS))') -o $$@
endef

define version  # $(1) version, $(2) source, $(3) folder
$(call instances,$(1),$(2),$(3))
$(call nvcc,$(1),$(2),$(3))
$(foreach a,$(call archs_of,$(1)),$(eval $(call ptxas,$(3),$(1).ptx,$a,$(call log,$(1),$a))))
$(call embed,$(3)/code.o,$(3),$(1).ptx,fl_image,$(call archs_of,$(1)))
$(call link,$(1),$(2),$(3))
$(foreach a,$(call archs_of,$(1)),$(eval $(call records,$(1),$a,$(3)/sm_$a.cubin,$(call log,$(1),$a))))
-include $(3)/$(1).d $(3)/about.d
endef
version_of = $(firstword $(subst _, ,$(notdir $(1))))
$(foreach s,$(SOURCES),$(eval $(call version,$(call version_of,$s),$s,$(call folder,$(call version_of,$s)))))
$(foreach v,$(ATTENTION),$(eval $(call version,$v,kernels/$(subst .,/,$v).cu,$(call folder,$v))))

# The helper kernels of the harness: clock stamps, peak of the tensor cores. Versions for one GPU have their own.
define device  # $(1) folder, $(2) architecture of the PTX, $(3) those of the cubins
$(1)/device.ptx: harness/device/device.cu $(BUILD)/flags/nvcc | $(COMPILER)
	@mkdir -p $(1)
	$$(call say,NVCC,$$@)$$(call compile_cuda,-arch=compute_$(2)); $$(whole_ptx)
$(foreach a,$(3),$(eval $(call ptxas,$(1),device.ptx,$a,$(1)/sm_$a.log)))
$(call embed,$(1)/code.o,$(1),device.ptx,fl_device_image,$(3))
endef
$(eval $(call device,$(BUILD)/device,80,$(ARCHS)))
$(foreach a,90a 120a,$(eval $(call device,$(BUILD)/device/$a,$a,$a)))
-include $(wildcard $(BUILD)/device/*.d $(BUILD)/device/*/*.d)

# Microbenchmarks of wgmma and of single instructions: programs of their own, for sm_90a alone; no version needs them.
$(BUILD)/peak/microbenchmark.o: harness/device/microbenchmark.c $(BUILD)/toolkit.h $(BUILD)/flags/cc
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,-I$(BUILD))
bin/peak bin/pipes: $(BUILD)/peak/microbenchmark.o $(BUILD)/harness/stats.o $(BUILD)/flags/ld \
		$(addprefix $(BUILD)/runtime/,cuda_driver.o image.o config.o launch.o sha256.o json.o status.o)
define microbenchmark  # $(1) the program, $(2) its device code
$(BUILD)/$(1)/$(1).ptx: harness/device/$(2).cu $(BUILD)/flags/nvcc | $(COMPILER)
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$@)$$(call compile_cuda,-arch=compute_90a); $$(whole_ptx)
$(call ptxas,$(BUILD)/$(1),$(1).ptx,90a,$(BUILD)/$(1)/sm_90a.log)
$(call embed,$(BUILD)/$(1)/code.o,$(BUILD)/$(1),$(1).ptx,fl_$(1)_image,90a)
$(BUILD)/$(1)/$(1).o: harness/device/$(1).c $(BUILD)/flags/cc
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)$$(call compile)
bin/$(1): $(BUILD)/$(1)/$(1).o $(BUILD)/$(1)/code.o
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)$$(parts) $$(CC) $$(LDFLAGS) -o $$(part) $$(filter %.o,$$^) $$(ALL_LDLIBS) $$(linked)
-include $$(wildcard $(BUILD)/$(1)/*.d)
endef
$(eval $(call microbenchmark,peak,wgmma_peak))
$(eval $(call microbenchmark,pipes,pipes))

.PHONY: all cubins attention $(VERSIONS)
all: $(filter-out $(LEFT_OUT),$(VERSIONS)) bin/ptxrun  ## builds every version and ptxrun; `make v07` builds one
# make v07 builds bin/v07; KERNELS= chooses its instances, DEBUG=1 or DUMP=1 a variant below bin/
$(VERSIONS): %: $(BIN)/%
attention: $(BIN)/attention $(filter-out $(LEFT_OUT),$(ATTENTION))  ## builds the kernels of kernels/attention/
# The one for the newest GPUs of ARCHS; bin/attention.mma_sync runs on the others, and either of them on the emulator.
$(BIN)/attention: $(BIN)/$(lastword $(filter-out $(LEFT_OUT),$(ATTENTION)))
	@ln -sfn $(<F) $@
cubin = $(call folder,$(1))/sm_$(2).cubin
cubins: $(call each,cubin)  ##+ builds the machine code of every version: build/vNN/sm_XX.cubin [VER=]
