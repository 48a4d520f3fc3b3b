# Looking at versions: their source, machine code and records, side by side or alone, and the pages made of them.

##@ Looking at machine code
.PHONY: regs sass sass-diff read diff
regs: $(call each,regs_of)  ## writes registers, spills and code hashes to regs/registers.csv, and a report: [VER=]
	@$(RUN) -m analysis registers --version "$(CHOSEN)" $(if $(OWN),--merge $^,--folder $(BUILD)/regs$(SET))
sass: $(call each,listing)  ##+ writes disassembly with control codes to sass/vNN.sm_XX.sass: [VER=]
demangled = $(basename $(call log,$(1),$(2))).demangled.log
# What ./fl does. It builds what it shows by a make that shares our jobs: hence the +, which `make -n` goes without.
FL = $(if $(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),,+)@FL_BUILDS=1 $(RUN) -m analysis
shown = $(if $(filter 90 90a,$(ARCHS)),,--arch $(firstword $(ARCHS)))
sass-diff:  ## shows what changed in the machine code, loop first: A= B= [CONFIG=] [ARGS=--text]
	$(call need,A B)
	$(FL) $@ $(A) $(B) $(shown) $(call option,CONFIG,config) $(ARGS)
read:  ## prints a kernel with its configuration folded in, without asserts and dumps: VER=
	$(call need,VER)
	@$(RUN) -m analysis $@ $(VER)
diff:  ## shows what changed in the source, and counts the lines: A= B= [ARGS=--folded]
	$(call need,A B)
	@$(RUN) -m analysis $@ $(A) $(B) $(ARGS)

##@ A new version
.PHONY: adopt accept
# All that a version adds to committed files, except what a GPU measures.
adopt: | $(READY)  ## records what needs no GPU about a version, and writes the pages again: VER= WHY=
	$(call need,VER)$(reason)$(unfilled)
	@$(RUN) -m analysis accept --version "$(VER)" --why '$(call quoted,$(WHY))' --check
	$(call say,ADOPT,1 of 6: build)$(MAKE) --no-print-directory $(VER) bin/ptxrun
	$(call say,ADOPT,2 of 6: registers and machine code)$(MAKE) --no-print-directory accept
	$(call say,ADOPT,3 of 6: memory traffic on the emulator)$(RUN) -m analysis traffic --version "$(VER)" --write
	$(call say,ADOPT,4 of 6: predicted time)$(foreach v,$(VER),$(RUN) -m analysis predict $v --write &&) :
	$(call say,ADOPT,5 of 6: tables and pictures of the pages)$(PY) -m analysis ladder --write
	$(call say,ADOPT,6 of 6: notebooks)$(PY) -m analysis notebooks --write
	@printf '%s\n' 'Adopted: $(VER). Speeds show as "not measured" until a GPU adds them:' \
		'    make gpu-check VER="$(VER)"      # checks it on a GPU, against the emulator' \
		'    make bench VER="$(VER)"          # adds speeds to logs/bench/; also name the parent to compare' \
		'    ./fl profile --versions "$(VER)"   # adds counters of ncu to logs/profile/' \
		'    make ladder && ./fl notebooks --write    # then rewrites the pages'
accept: bin/ptxrun  ##+ accepts the numbers of a version in regs/registers.csv: VER= WHY=
	$(reason)$(unfilled)
	@$(MAKE) --no-print-directory regs sass VER="$(CHOSEN)" >/dev/null
	@$(RUN) -m analysis $@ --version "$(CHOSEN)" --why '$(call quoted,$(WHY))'
reason = $(if $(WHY),,$(error $@ needs WHY="the reason"))
unfilled = $(foreach f,$(shell grep -l 'FILL IN:' $(foreach v,$(CHOSEN),$(wildcard kernels/*/$v_*.cu))),\
	$(error $f: fill in the lines of its header block that say "FILL IN:", then run this again))

##@ Tables and pages
.PHONY: report ladder site
report: $(READY) | $(filter regs,$(MAKECMDGOALS))  ## writes one page about all versions: build/report.html
	@$(RUN) -m analysis $@
ladder: all | $(READY)  ##+ rewrites the generated tables of the documents
	@$(RUN) -m analysis traffic --write
	@$(RUN) -m analysis $@ --write
# A version's page shows its machine code next to its PTX, and the machine runs that: the code that the tools show.
site: $(WASM_FILES) $(foreach v,$(filter-out $(ATTENTION),$(VERSIONS)),$(BUILD)/$v/$v.ptx \
	$(BUILD)/$v/sm_$(lastword $(call archs_of,$v)).cubin)
# MyST-NB keeps files of its own next to the pages that Sphinx writes, so these are written in build/ first.
# Those of machine_page.py whose S, m, l, P and O it compares with the reference.
IN_STORY := v01 v02 v08 v09 v17 v19 v25 v26 v28 v29 v35 v37
site: $(SITE)/site.installed | $(READY)  ## builds documents, notebooks and tables as a static site: site/index.html
	@$(call one_make,site); $(MAKE) --no-print-directory DUMP=1 $(foreach v,$(IN_STORY),build/dump/$v/$v.ptx); \
	$(PY) -m analysis $@ --single; $(PY) -m analysis $@ --stage build/site/sources; rm -rf build/site/pages site; \
	$(SITE)/bin/sphinx-build -q -W --keep-going -j auto -d build/site/doctrees -c docs/site \
		build/site/sources build/site/pages; \
	$(PY) -m analysis $@ --check build/site/pages; mv build/site/pages site; echo site/index.html
