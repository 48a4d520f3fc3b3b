# The judge: runs what a submission did on a GPU again, on inputs that it has not seen.
#
#     emulator/judge/*.c ─ cc ─► build/judge/*.o ─► bin/judge-replay, bin/judge-jail

JUDGE := $(patsubst emulator/%.c,$(BUILD)/%.o,$(wildcard emulator/judge/*.c))

JUDGE_TOOLS := bin/judge-replay
$(JUDGE): $(BUILD)/%.o: emulator/%.c $(BUILD)/flags/cc | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(call compile,$(CUDA_H))
bin/judge-replay: $(filter-out %/jail.o,$(JUDGE)) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) -ldl $(linked)

-include $(wildcard $(BUILD)/judge/*.d)
