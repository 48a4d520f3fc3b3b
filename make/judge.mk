# The judge: runs what a submission did on a GPU again, on inputs that it has not seen.
#
#     emulator/judge/*.c ─ cc ─► build/judge/*.o ─► bin/judge-replay, bin/judge-jail

JUDGE := $(patsubst emulator/%.c,$(BUILD)/%.o,$(wildcard emulator/judge/*.c))

JAIL := $(filter %/jail.o %/jail_files.o %/jail_filter.o %/jail_room.o,$(JUDGE))
JUDGE_TOOLS := bin/judge-replay bin/judge-jail
.PHONY: judge-tools
judge-tools: libcuda $(JUDGE_TOOLS)  ##+ what ./fl judge needs
$(JUDGE): $(BUILD)/%.o: emulator/%.c $(BUILD)/flags/cc | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,$(CUDA_H))
bin/judge-replay: $(filter-out $(JAIL),$(JUDGE)) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) -ldl $(linked)
bin/judge-jail: $(JAIL) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(linked)

-include $(wildcard $(BUILD)/judge/*.d)
