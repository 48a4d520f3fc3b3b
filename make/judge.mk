# The judge: runs what a submission did on a GPU again, on inputs that it has not seen.
#
#     emulator/judge/*.c ─ cc ─► build/judge/*.o ─► bin/judge-replay, bin/judge-jail

JUDGE := $(patsubst emulator/%.c,$(BUILD)/%.o,$(wildcard emulator/judge/*.c))

JAIL := $(filter $(BUILD)/judge/jail%,$(JUDGE))
JUDGE_TOOLS := bin/judge-replay bin/judge-jail
.PHONY: judge judge-tools
judge: judge-tools  ##+ judges a submission, as ./fl judge: PROBLEM= SUBMISSION= [ARGS=]
	@$(FL) judge '$(call quoted,$(PROBLEM))' '$(call quoted,$(SUBMISSION))' $(ARGS)
judge-tools: libcuda $(JUDGE_TOOLS)  ##+ builds what ./fl judge needs
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
