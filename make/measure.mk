# Running versions: on a GPU to time them, on either back end to check them.

##@ Measuring
.PHONY: bench profile gpu-check peak pipes peers compare autotune race sanitize debug bench-emu corpus
measured = $(PYTHON) -m analysis $@ $(call option,SEQS,seqs) $(call option,BUDGET,budget) $(ARGS)
bench: $(CHOSEN)  ## times versions, on a GPU: VER= [SEQS=] [BUDGET=] [ARGS=]
profile: $(CHOSEN)  ##+ measures versions with ncu, on a GPU: VER= [SEQS=] [BUDGET=] [ARGS=]
bench profile:
	@$(measured) --versions "$(CHOSEN)"
gpu-check: $(CHOSEN)  ## the tests that need a GPU; builds every version first: VER= [SEQS=] [BUDGET=] [ARGS=]
	@$(measured) --versions "$(CHOSEN)"
peak: bin/peak  ##+ how fast wgmma runs, on a GPU of 90: logs/bench/wgmma.GPU.json
	@$(PYTHON) -m analysis $@
pipes: bin/pipes  ##+ what instructions, copies and launches cost, on a GPU of 90: logs/bench/pipes.GPU.json
	@$(PYTHON) -m analysis $@
peers: $(CHOSEN)  ##+ PyTorch's attention and cuBLAS beside ours, on a GPU that has PyTorch: [SEQS=] [BUDGET=] [ARGS=]
	@$(measured)
compare: $(A) $(B)  ## SAME, FASTER, SLOWER or UNSURE: A= B= [SEQS=] [BUDGET=] [ARGS=]
	$(call need,A B)
	@$(measured) $(A) $(B)
debug: | $(READY)
# Its executable goes to a folder of its own: bin/vNN keeps the version's own configuration.
autotune:  ##+ the fastest configuration, without a GPU ranked by prediction: VER= [KERNELS=] [SEQS=] [BUDGET=] [ARGS=]
	$(call need,VER)
	@$(MAKE) --no-print-directory BIN=bin/tune \
		KERNELS='$(or $(filter-out default,$(call quoted,$(KERNELS))),tune)' $(VER)
	@BIN=bin/tune $(measured) --versions "$(VER)"
race: $(CHOSEN)  ## races: the emulator's checks, compute-sanitizer on a GPU: VER= [ARGS=]
sanitize: $(CHOSEN)  ##+ all tools of compute-sanitizer, or the emulator's checks: VER= [ARGS=]
race sanitize:
	@$(PYTHON) -m analysis $@ --versions "$(CHOSEN)" --exit-code $(ARGS)
debug:  ## S, m, P, l and O after every KV block against NumPy: VER= [CONFIG=] [SEQ=] [DTYPE=] [DIST=] [ARGS=]
	$(call need,VER)
	@$(MAKE) --no-print-directory DUMP=1 $(VER) $(if $(CONFIG),KERNELS='$(call quoted,$(CONFIG))')
	@$(RUN) -m analysis debug --version $(VER) $(call option,CONFIG,config) $(call option,SEQ,seq) \
		$(call option,DTYPE,dtype) $(call option,DIST,dist) $(ARGS)
LAUNCHED := v16 v37
BENCHES := $(LAUNCHED:%=$(BUILD)/tests/bench_emu.%)
TIMED := $(foreach v,$(VERSIONS),$(call folder,$v)/$v.ptx)
bench-emu: $(BENCHES) $(TIMED)  ##+ how fast the emulator is here, as CSV: processor time of one thread
	@$(foreach bench,$(BENCHES),$(bench) $(if $(filter %.v16,$(bench)),$(TIMED)) &&) :
corpus: bin/ptxrun  ##+ what the emulator accepts of the kernels below a folder: DIR= [ARGS=--refused]
	$(if $(DIR),,$(error corpus needs DIR=, a folder with .cu or .ptx files: make corpus DIR=../samples))
	@$(RUN) -m analysis $@ '$(call quoted,$(DIR))' $(ARGS)
