# Running versions: on a GPU to time them, on either back end to check them.

##@ Measuring
.PHONY: bench profile gpu-check compare autotune race debug
measured = $(PYTHON) -m analysis $@ $(call option,SEQS,seqs) $(call option,BUDGET,budget) $(ARGS)
bench: $(CHOSEN)  ## times versions, on a GPU: VER= [SEQS=] [BUDGET=] [ARGS=]
profile: $(CHOSEN)  ##+ measures versions with ncu, on a GPU: VER= [SEQS=] [BUDGET=] [ARGS=]
bench profile:
	@$(measured) --versions "$(CHOSEN)"
gpu-check: $(CHOSEN)  ## the tests that need a GPU; builds every version first: VER= [SEQS=] [BUDGET=] [ARGS=]
	@$(measured) --versions "$(CHOSEN)"
compare: $(A) $(B)  ## SAME, FASTER, SLOWER or UNSURE: A= B= [SEQS=] [BUDGET=] [ARGS=]
	$(call need,A B)
	@$(measured) $(A) $(B)
# Its executable goes to a folder of its own: bin/vNN keeps the version's own configuration.
autotune:  ##+ the fastest configuration, without a GPU ranked by prediction: VER= [KERNELS=] [SEQS=] [BUDGET=] [ARGS=]
	$(call need,VER)
	@$(MAKE) --no-print-directory BIN=bin/tune \
		KERNELS='$(or $(filter-out default,$(call quoted,$(KERNELS))),tune)' $(VER)
	@BIN=bin/tune $(measured) --versions "$(VER)"
race: $(CHOSEN)  ## races: the emulator's checks, compute-sanitizer on a GPU: VER= [ARGS=]
	@$(PYTHON) -m analysis $@ --versions "$(CHOSEN)" --exit-code $(ARGS)
debug: | $(READY)  ## S, m, P, l, O after every KV block against NumPy: VER= [CONFIG=] [SEQ=] [DTYPE=] [DIST=] [ARGS=]
	$(call need,VER)
	$(FL) debug --version $(VER) $(call option,CONFIG,config) $(call option,SEQ,seq) \
		$(call option,DTYPE,dtype) $(call option,DIST,dist) $(ARGS)
