# Exercises: a learner's file is made from a version's source, and graded on the emulator.

##@ Learning
.PHONY: exercise
# Status 1 says that it is not solved yet, which is no error of make.
exercise: bin/ptxrun $(READY)  ## sets up an exercise at the first call, then grades it: N=
	@$(PY) -m analysis $@ -- '$(call quoted,$(N))' || [ $$? -eq 1 ]
