# Running versions: on a GPU to time them, on either back end to check them.

##@ Measuring
.PHONY: bench gpu-check debug
measured = $(PYTHON) -m analysis $@ $(call option,SEQS,seqs) $(call option,BUDGET,budget) $(ARGS)
bench: $(CHOSEN)  ## times versions on a GPU: VER= [SEQS=] [BUDGET=] [ARGS=]
gpu-check: $(CHOSEN)  ## runs the tests that need a GPU; first builds every version: VER= [SEQS=] [BUDGET=] [ARGS=]
bench gpu-check:
	@$(measured) --versions "$(CHOSEN)"
debug: | $(READY)  ## compares S, m, P, l, O of each block with NumPy: VER= [CONFIG=] [SEQ=] [DTYPE=] [DIST=] [ARGS=]
	$(call need,VER)
	$(FL) debug --version $(VER) $(call option,CONFIG,config) $(call option,SEQ,seq) \
		$(call option,DTYPE,dtype) $(call option,DIST,dist) $(ARGS)
