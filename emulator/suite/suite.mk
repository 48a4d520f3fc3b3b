# Programs of others on the emulator, and what is recorded of them.
#
#     make -f emulator/suite/suite.mk suite

include Makefile

##@ Programs of others
# Programs that know nothing of the emulator, in an environment of their own.
SUITE := build/suite
.PHONY: suite
suite: $(if $(TRITON),$(FRAMEWORKS)/frameworks.installed)
suite: libcuda $(SUITE)/ready  ##+ runs programs of Triton, Gluon, Numba and tinygrad: [ZLUDA= TRITON=]
	$(SUITE)/bin/python emulator/suite/run.py $(SUITE)/bin/python bin/emulated-gpu emulator/suite/README.md \
		'$(ZLUDA)' '' $(if $(TRITON),'$(TRITON)' $(FRAMEWORKS)/bin/python)
$(SUITE)/ready: emulator/suite/requirements.txt
	$(call say,SETUP,Triton$(comma) Numba and tinygrad into $(@D))rm -rf $(@D) && $(PYTHON) -m venv $(@D) \
		&& $(@D)/bin/python -m pip install -q --disable-pip-version-check --progress-bar off -r $< || { \
		echo 'make: the packages of $< cannot be reached; run make again' >&2; exit 1; }
	@touch $@

# Frameworks that need another environment, because numba-cuda replaces a part of Numba.
SUITE_FRAMEWORKS := $(BUILD)/suite-frameworks
.PHONY: suite-frameworks
suite-frameworks: libcuda $(SUITE_FRAMEWORKS)/ready  ##+ programs of Taichi, Dr.Jit, SlangPy, PyCUDA and the like
	@for each in Taichi Quadrants Dr.Jit SlangPy PyCUDA cuda.core numba-cuda; do \
		CUDA_HOME=$(abspath $(TOOLKIT)) PATH=$(abspath $(TOOLKIT))/bin:$$PATH $(PYTHON) emulator/suite/run.py \
			$(SUITE_FRAMEWORKS)/bin/python bin/emulated-gpu emulator/suite/README.md \
			--only $$each $$each; done
$(SUITE_FRAMEWORKS)/ready: emulator/suite/frameworks.txt | $(COMPILER)
	$(call say,SETUP,frameworks into $(@D))rm -rf $(@D) && $(PYTHON) -m venv $(@D) && \
		CUDA_HOME=$(abspath $(TOOLKIT)) PATH=$(abspath $(TOOLKIT))/bin:$$PATH \
		$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

# The CUDA build of PyTorch, which takes 5 GB.
SUITE_TORCH := $(BUILD)/suite-torch
.PHONY: suite-torch
suite-torch: libcuda $(SUITE_TORCH)/ready  ##+ programs of PyTorch's CUDA build
	$(PYTHON) emulator/suite/run.py $(SUITE_TORCH)/bin/python bin/emulated-gpu emulator/suite/README.md \
		--only PyTorch PyTorch
$(SUITE_TORCH)/ready:
	$(call say,SETUP,PyTorch into $(@D))rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --progress-bar off torch==2.15.0 numpy==2.4.6
	@touch $@

# CUTLASS's examples of Blackwell, from a checkout; each takes a minute to compile.
SUITE_CUTLASS := $(BUILD)/suite-cutlass
cutlass_source = $(wildcard $(addsuffix /$(1).cu,$(CUTLASS)/examples/* $(CUTLASS)/examples/cute/tutorial/blackwell))
cutlass_examples = $(patsubst %,$(SUITE_CUTLASS)/$(1)/%,$(basename $(notdir \
	$(wildcard $(addprefix $(CUTLASS)/examples/,$(2))))))
OF_SM_100A := $(call cutlass_examples,sm_100a,cute/tutorial/blackwell/*.cu $(addsuffix /*.cu,70_* 71_* 72_* 73_* 74_* \
	75_* 76_* 78_* 83_* 91_*) 77_*/77_blackwell_fmha.cu 77_*/*_gen.cu 77_*/*mla_fwd.cu \
	81_*/81_blackwell_gemm_blockwise.cu 84_*/84a_*.cu 92_*/*gemm_regular.cu 93_*/tgv_gqa.cu)
OF_SM_103A := $(call cutlass_examples,sm_103a,89_*/*.cu 90_*/*.cu)
OF_SM_120A := $(call cutlass_examples,sm_120a,79_*/79a_*.cu 79_*/79c_*.cu 80_*/*.cu 87_*/87a_*.cu)
OF_CUTLASS := $(OF_SM_100A) $(OF_SM_103A) $(OF_SM_120A)
.PHONY: suite-cutlass
suite-cutlass: libcuda $(if $(CUTLASS),$(OF_CUTLASS))  ##+ runs CUTLASS's examples for Blackwell: CUTLASS=
	$(if $(CUTLASS),,$(error suite-cutlass needs CUTLASS=FOLDER, a checkout of CUTLASS))
	$(PYTHON) emulator/suite/run.py $(PYTHON) bin/emulated-gpu emulator/suite/README.md \
		--only cutlass $(SUITE_CUTLASS)
cutlass_arch = $(patsubst sm_%,compute_%,$(notdir $(@D)))
$(OF_CUTLASS): | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(NVCC) -std=c++17 -O2 -DNDEBUG -lineinfo -w --expt-relaxed-constexpr -cudart shared \
		-isystem $(CCCL) -gencode arch=$(cutlass_arch),code=$(cutlass_arch) -o $@ \
		$(addprefix -I$(CUTLASS)/,include tools/util/include examples/common) \
		$(call cutlass_source,$(@F)) -I$(dir $(call cutlass_source,$(@F))) -L$(EMULATED) -lcuda

# Kernels for sm_100a in host programs of ours. CUTLASS= where a checkout has no submodules.
#
#     learn_cuda.cu, blackwell/NAME.cu, fp8/flashmla.cu + kernels of a checkout ─ nvcc ─► build/suite-NAME/program
#
# learn-cuda's header asks for PyTorch's.
SUITE_HOSTS := $(BUILD)/suite-blackwell
SUITE_HOST_FLAGS = -O3 -std=c++20 -lineinfo -gencode arch=compute_100a,code=compute_100a --expt-relaxed-constexpr \
	--expt-extended-lambda -DNDEBUG -DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1 -w -isystem $(CCCL) -cudart shared
host_rows = $(if $($(2)),,$(error suite-$(1) needs $(2)=FOLDER, a checkout))$(PYTHON) emulator/suite/run.py $(PYTHON) \
	bin/emulated-gpu emulator/suite/README.md --only $(1) $(SUITE_HOSTS)/$(1)
.PHONY: suite-learn-cuda suite-thunderkittens suite-deepgemm suite-flashmla suite-flashinfer
suite-learn-cuda: libcuda $(if $(LEARN_CUDA),$(SUITE_HOSTS)/learn-cuda)  ##+ matmuls of learn-cuda: LEARN_CUDA=
	$(call host_rows,learn-cuda,LEARN_CUDA)
suite-thunderkittens: libcuda $(if $(THUNDERKITTENS),$(SUITE_HOSTS)/thunderkittens)  ##+ its products: THUNDERKITTENS=
	$(call host_rows,thunderkittens,THUNDERKITTENS)
suite-deepgemm: libcuda $(if $(DEEPGEMM),$(SUITE_HOSTS)/deepgemm)  ##+ DeepGEMM for sm_100a: DEEPGEMM= [CUTLASS=]
	$(call host_rows,deepgemm,DEEPGEMM)
suite-flashmla: libcuda $(if $(FLASHMLA),$(SUITE_HOSTS)/flashmla)  ##+ FlashMLA for sm_100a: FLASHMLA= [CUTLASS=]
	$(call host_rows,flashmla,FLASHMLA)
suite-flashinfer: libcuda $(if $(FLASHINFER),$(SUITE_HOSTS)/flashinfer)  ##+ FlashInfer: FLASHINFER= [CUTLASS=]
	$(call host_rows,flashinfer,FLASHINFER)
define host_program  # $(1) name, $(2) our program, $(3) sources of the checkout, $(4) flags
$(SUITE_HOSTS)/$(1): $(2) $(3) $(wildcard emulator/suite/*/*.cuh) | $(COMPILER)
	@mkdir -p $(SUITE_HOSTS)/torch && echo '#define TORCH_CHECK(...)' >$(SUITE_HOSTS)/torch/library.h
	$$(call say,NVCC,$$@)$(NVCC) $$(SUITE_HOST_FLAGS) $(4) -o $$@ $$(filter %.cu,$$^) -L$(EMULATED) -lcuda
endef
OF_KITTENS = -DKITTENS_BLACKWELL --use_fast_math $(addprefix -I$(THUNDERKITTENS)/,include prototype kernels/gemm)
$(eval $(call host_program,learn-cuda,emulator/suite/learn_cuda.cu,\
	$(wildcard $(LEARN_CUDA)/02e_matmul_sm100/matmul_v*.cu),-I$(SUITE_HOSTS) -include tuple -include cuda_bf16.h))
$(eval $(call host_program,thunderkittens,emulator/suite/blackwell/thunderkittens.cu,,$$(OF_KITTENS)))
$(eval $(call host_program,deepgemm,emulator/suite/blackwell/deepgemm.cu,,$$(DEEPGEMM_FLAGS)))
$(eval $(call host_program,flashmla,emulator/suite/fp8/flashmla.cu,$(wildcard $(addprefix $(FLASHMLA)/csrc/,\
	sm100/decode/*/*/*.cu sm100/prefill/sparse/*/*/*.cu sm100/prefill/sparse/*/*/*/*.cu smxx/decode/*/*.cu)),\
	-DFL_SM_100A -I$(FLASHMLA)/csrc/sm100 $$(FLASHMLA_FLAGS)))
$(eval $(call host_program,flashinfer,emulator/suite/blackwell/flashinfer.cu,,$$(FLASHINFER_FLAGS)))

# Small cases of Gluon's tutorials and examples for Blackwell, from a checkout of Triton.
.PHONY: suite-gluon
suite-gluon: libcuda $(FRAMEWORKS)/frameworks.installed  ##+ Gluon's tutorials and examples: TRITON=
	$(if $(TRITON),,$(error suite-gluon needs TRITON=FOLDER, a checkout of Triton))
	$(PYTHON) emulator/suite/run.py $(FRAMEWORKS)/bin/python bin/emulated-gpu emulator/suite/README.md \
		--only gluon '$(TRITON)'

# The forward kernels of FlashAttention-4, from a checkout, in an environment with the CuTe DSL.
SUITE_CUTE := $(BUILD)/suite-cute
.PHONY: suite-flash-attention
suite-flash-attention: libcuda $(SUITE_CUTE)/ready $(SUITE_CUTE)/runtime.so  ##+ FlashAttention-4: FLASH_ATTENTION=
	$(if $(FLASH_ATTENTION),,$(error suite-flash-attention needs FLASH_ATTENTION=FOLDER, a checkout))
	CUTE_DSL_LIBS=$(SUITE_CUTE)/runtime.so $(PYTHON) emulator/suite/run.py $(SUITE_CUTE)/bin/python \
		bin/emulated-gpu emulator/suite/README.md --only flash '$(FLASH_ATTENTION)'
$(SUITE_CUTE)/runtime.so: emulator/suite/cute_dsl_runtime.c | libcuda $(SUITE_CUTE)/ready
	$(call say,LINK,$@)$(CC) -std=c11 -shared -fPIC -I$(TOOLKIT)/include -o $@ $< -L$(EMULATED) -lcuda
$(SUITE_CUTE)/ready:
	$(call say,SETUP,the CuTe DSL into $(@D))rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip \
		install -q --disable-pip-version-check --progress-bar off \
		'nvidia-cutlass-dsl[cu13]==4.8.1' quack-kernels
	@touch $@

# Fp8 kernels of other projects, each with a host program of ours; CUTLASS= where a checkout has no submodules.
#
#     emulator/suite/fp8/NAME.cu + kernels of the checkout ─ nvcc ─► build/suite-fp8/NAME/program
#     program ─ fp8_kernels.py ─► logs/emulator/hopper_runs.csv
SUITE_FP8 := $(BUILD)/suite-fp8
FLASHMLA_CU = $(wildcard $(addprefix $(FLASHMLA)/csrc/,sm90/decode/sparse_fp8/instantiations/*.cu smxx/decode/*/*.cu))
SUITE_FP8_FLAGS = -O3 -std=c++20 -lineinfo -gencode arch=compute_90a,code=compute_90a --expt-relaxed-constexpr \
	--expt-extended-lambda -DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1 -w -isystem $(CCCL) $(NVCCFLAGS)
cutlass_in = $(if $(filter command%,$(origin CUTLASS)),$(CUTLASS),$(1))/include
DEEPGEMM_FLAGS = -I$(DEEPGEMM)/deep_gemm/include -I$(call cutlass_in,$(DEEPGEMM)/third-party/cutlass)
FLASHINFER_CUTLASS = $(call cutlass_in,$(FLASHINFER)/3rdparty/cutlass)
FLASHINFER_FLAGS = -DCUTLASS_ENABLE_GDC_FOR_SM100=1 -I$(FLASHINFER)/include -I$(FLASHINFER_CUTLASS) \
	-I$(FLASHINFER_CUTLASS:include=tools/util/include)
FLASHMLA_FLAGS = -I$(FLASHMLA)/csrc -I$(FLASHMLA)/csrc/sm90 -I$(FLASHMLA)/csrc/kerutils/include --use_fast_math \
	-DNDEBUG -D_USE_MATH_DEFINES -I$(call cutlass_in,$(FLASHMLA)/csrc/cutlass)
ifneq ($(filter suite-fp8,$(MAKECMDGOALS)),)
$(if $(DEEPGEMM)$(FLASHMLA),,$(error suite-fp8 needs DEEPGEMM=, FLASHMLA= or both, checkouts of these projects: \
	make -f emulator/suite/suite.mk suite-fp8 DEEPGEMM=../DeepGEMM))
fp8_holds = $(if $($(1)),$(if $(wildcard $(2)),,$(error $(1)=$($(1)) leads to no $(2): $(3))))
$(call fp8_holds,DEEPGEMM,$(DEEPGEMM)/deep_gemm/include,it must be a checkout of DeepGEMM)
$(call fp8_holds,FLASHMLA,$(FLASHMLA)/csrc/sm90/decode/sparse_fp8,it must be a checkout of FlashMLA)
NO_CUTLASS := run `git submodule update --init` there or name a checkout of CUTLASS by CUTLASS=
$(call fp8_holds,DEEPGEMM,$(call cutlass_in,$(DEEPGEMM)/third-party/cutlass)/cutlass,$(NO_CUTLASS))
$(call fp8_holds,FLASHMLA,$(call cutlass_in,$(FLASHMLA)/csrc/cutlass)/cutlass,$(NO_CUTLASS))
endif
.PHONY: suite-fp8
suite-fp8: $(if $(DEEPGEMM),$(SUITE_FP8)/deepgemm/program) $(if $(FLASHMLA),$(SUITE_FP8)/flashmla/program)
suite-fp8:  ##+ compares fp8 kernels of other projects with float64: [DEEPGEMM= FLASHMLA= CUTLASS=]
	$(if $(DEEPGEMM),$(call fp8_rows,DEEPGEMM,DeepGEMM,deepgemm))
	$(if $(FLASHMLA),$(call fp8_rows,FLASHMLA,FlashMLA,flashmla))
fp8_rows = version=$$(git -C $($(1)) rev-parse --short HEAD) && $(PYTHON) emulator/suite/fp8_kernels.py \
	bin/emulated-gpu logs/emulator/hopper_runs.csv $(2) $$version $(SUITE_FP8)/$(3)/program
define fp8_project  # $(1) program, $(2) variable of its checkout
$(call stamp,$(BUILD)/flags/suite-$(1),$$(NVCC) $$(SUITE_FP8_FLAGS) $$($(2)_FLAGS))
$(1)_PARTS = $$($(2)_CU:$($(2))/csrc/%.cu=$(SUITE_FP8)/$(1)/%.o)
$(SUITE_FP8)/$(1)/host.o: emulator/suite/fp8/$(1).cu
$$($(1)_PARTS): $(SUITE_FP8)/$(1)/%.o: $($(2))/csrc/%.cu
$(SUITE_FP8)/$(1)/host.o $$($(1)_PARTS): $(BUILD)/flags/suite-$(1) | $(COMPILER)
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$@)$$(parts) $(NVCC) $$(SUITE_FP8_FLAGS) $$($(2)_FLAGS) -MD -MP -MF $$(@:.o=.d) -MT $$@ \
		-c -o $$(part) $$(filter %.cu,$$^); $$(whole)
$(SUITE_FP8)/$(1)/program: $(SUITE_FP8)/$(1)/host.o $$($(1)_PARTS) | libcuda
	$$(call say,LINK,$$@)$$(parts) $(NVCC) -cudart shared -o $$(part) $$(filter %.o,$$^) -L$(EMULATED) -lcuda; \
		$$(whole)
-include $$(wildcard $(SUITE_FP8)/$(1)/host.d $$($(1)_PARTS:.o=.d))
endef
$(eval $(call fp8_project,deepgemm,DEEPGEMM))
$(eval $(call fp8_project,flashmla,FLASHMLA))

# What compute-sanitizer says of the real faults; needs a GPU.
.PHONY: faults-on-gpu
faults-on-gpu: $(READY)  ##+ runs compute-sanitizer on the kernels of real faults, on a GPU
	$(PY) emulator/suite/real_faults.py run $(NVCC) $(BUILD)/faults emulator/suite/README.md

.PHONY: bench-emu
BENCHES := $(patsubst %,$(BUILD)/tests/bench_emu.%,v16 v37)
TIMED := $(foreach v,$(VERSIONS),$(call folder,$v)/$v.ptx)
bench-emu: $(BENCHES) $(TIMED)  ##+ measures the speed of the emulator, as CSV: processor time of one thread
	@$(foreach bench,$(BENCHES),$(bench) $(if $(filter %.v16,$(bench)),$(TIMED)) &&) :
