# A GPU for programs that have none: the driver API over the emulator.
#
#     emulator/driver/*.c ─ cc ─► build/driver/*.o ┐
#     build/emulator/{ptx,…,explore}/*.o ──────────┴─► lib/emulated/libcuda.so.1 ◄─ bin/emulated-gpu PROGRAM
#     emulator/cudart/*.c ─ cc ─► build/cudart/*.o ──► lib/emulated/libcudart.so.13, for `nvcc -cudart shared`

DRIVER_TOOL := emulator/driver/emulated_gpu.c
DRIVER_C := $(wildcard emulator/driver/*.c)
DRIVER := $(patsubst emulator/%.c,$(BUILD)/%.o,$(filter-out $(DRIVER_TOOL),$(DRIVER_C)))
CUDART := $(patsubst emulator/%.c,$(BUILD)/%.o,$(wildcard emulator/cudart/*.c))
EMULATED := lib/emulated
# cuda.h is the toolkit's: no other one is looked for.
CUDA_H = -isystem $(TOOLKIT)/include

.PHONY: libcuda
libcuda: $(addprefix $(EMULATED)/,libcuda.so.1 libcuda.so libcudart.so.13 ptxas)
libcuda: bin/emulated-gpu  ## builds bin/emulated-gpu, which runs programs that need a GPU without one
# Not in $(BUILD)/emulator, whose objects are linked as a whole.
$(DRIVER) $(CUDART) $(DRIVER_TOOL:emulator/%.c=$(BUILD)/%.o): $(BUILD)/%.o: emulator/%.c $(BUILD)/flags/cc | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,$(CUDA_H))
$(EMULATED)/libcuda.so.1: $(DRIVER) $(filter-out $(BUILD)/emulator/tool/% $(BUILD)/emulator/cuda/%,$(EMULATOR)) \
		$(BUILD)/cuda.aliases $(BUILD)/cuda.map $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) \
		-Wl,-soname,$(@F),--version-script=$(BUILD)/cuda.map $(filter %.o %.aliases,$^) $(ALL_LDLIBS) $(linked)
# A linker script that gives functions their other names.
$(BUILD)/cuda.aliases: emulator/driver/functions_table.h
	@mkdir -p $(@D)
	@$(parts) sed -n 's/^ALIAS(\(.*\), \(.*\), .*/\1 = \2;/p' $< >$(part); $(whole)
$(BUILD)/cuda.map:
	@mkdir -p $(@D)
	@$(parts) echo '{ global: cu*; local: *; };' >$(part); $(whole)
# Names are of the toolkit's version 13, and found in the emulated driver next to it.
$(EMULATED)/libcudart.so.13: $(CUDART) $(EMULATED)/libcuda.so.1 $(BUILD)/cudart.map $(BUILD)/flags/ld
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -shared -o $(part) -Wl,-soname,$(@F),-rpath,'$$ORIGIN' \
		-Wl,--version-script=$(BUILD)/cudart.map $(filter %.o %.so.1,$^) $(linked)
$(BUILD)/cudart.map:
	@mkdir -p $(@D)
	@$(parts) echo 'libcudart.so.13 { global: cuda*; __cuda*; local: *; };' >$(part); $(whole)
$(EMULATED)/libcuda.so: $(EMULATED)/libcuda.so.1
	@ln -sf $(<F) $@
$(EMULATED)/ptxas: emulator/driver/ptxas.sh
	@mkdir -p $(@D)
	@$(parts) cp $< $(part); chmod +x $(part); $(whole)
bin/emulated-gpu: $(DRIVER_TOOL:emulator/%.c=$(BUILD)/%.o) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(linked)

# Its test links it as a program does.
$(BUILD)/tests/test_driver.o $(BUILD)/tests-san/test_driver.o: private ALL_CFLAGS += $(CUDA_H)
$(BUILD)/tests/test_driver.o $(BUILD)/tests-san/test_driver.o: | $(COMPILER)
$(BUILD)/tests/test_driver $(BUILD)/tests-san/test_driver: %: %.o $(EMULATED)/libcuda.so.1
	$(call say,LINK,$@)$(parts) $(CC) $(if $(findstring -san,$@),$(SAN)) $(LDFLAGS) -o $(part) $^ \
		-Wl,-rpath,$(CURDIR)/$(EMULATED) $(ALL_LDLIBS) $(linked)

-include $(wildcard $(BUILD)/driver/*.d $(BUILD)/cudart/*.d)
