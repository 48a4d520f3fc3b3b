# Libraries to measure against, built from a checkout of their own source; nothing of them is kept here.
#
#     make -f harness/peers/peers.mk peer-fa3 FA3=../flash-attention
#
#     FA3/hopper + harness/peers/fa3_kernel.cu ─ nvcc ─► build/peers/fa3/NAME.o, one for each word of FA3_KERNELS
#     FA3/hopper + harness/peers/fa3_call.cu ─ nvcc ─► build/peers/fa3/fa3_call.o
#     NAME.o + fa3_call.o + harness/peers/fa3.c + build/harness/*.o ─ cc ─► bin/peers/fa3
#
# and of its backward pass by the files fa3_backward* the peers fa3_backward and fa3_ordered, its deterministic kernel;
# what servers call, by fa3_serving* as a library.

include Makefile

# TYPE_dSIZE_MASK_xCLUSTER. Those with clusters of 1 are for lengths with an odd number of Q blocks; FlashAttention-3
# has no clusters of 2 for d64 and for causal kernels. Each takes a core for a minute and 4 GB of memory. With
# e4m3_d128_full_x1 e4m3_d128_causal_x1, and no others, the executable takes e4m3 and gives bf16.
FA3_KERNELS ?= $(foreach form,d128_full_x2 d128_full_x1 d128_causal_x1 d64_full_x1 d64_causal_x1 d256_full_x2 \
	d256_full_x1 d256_causal_x1,$(addsuffix _$(form),fp16 bf16))
# TYPE_dSIZE_MASK_ORDER, of the backward pass: the sums in any order or in one.
FA3_BACKWARD_KERNELS ?= $(foreach form,d128_full_any d128_causal_any d64_full_any d64_causal_any d128_full_ordered \
	d128_causal_ordered,bf16_$(form))
CUTLASS ?= $(FA3)/csrc/cutlass
FA3_BUILD := $(BUILD)/peers/fa3
# As FlashAttention-3's setup.py has them, without what it needs for other kernels.
ALL_FA3FLAGS = -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a --use_fast_math --expt-relaxed-constexpr \
	--expt-extended-lambda -DNDEBUG -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90 \
	-diag-suppress=177 -I. -I$(FA3)/hopper -I$(CUTLASS)/include -isystem $(CCCL) $(NVCCFLAGS)
# "FlashAttention-3 3.0.0 1a2b3c4, CUTLASS 4.7.0", without the revision where the checkout has none.
FA3_LIBRARY = FlashAttention-3 $(strip $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' $(FA3)/hopper/__init__.py) \
	$(shell git -C $(FA3) rev-parse --short HEAD 2>/dev/null))$(addprefix $(comma) CUTLASS ,$(shell \
	awk '/^\#define CUTLASS_(MAJOR|MINOR|PATCH)/ { v = v (v == "" ? "" : ".") $$3 } END { print v }' \
		$(CUTLASS)/include/cutlass/version.h 2>/dev/null))

.PHONY: peer-fa3 peer-fa3-backward peer-fa3-serving
ifneq ($(filter peer-fa3 peer-fa3-backward peer-fa3-serving,$(MAKECMDGOALS)),)
$(if $(FA3),,$(error peer-fa3 needs FA3=, a checkout of flash-attention: \
	make -f harness/peers/peers.mk peer-fa3 FA3=../flash-attention))
$(if $(wildcard $(FA3)/hopper/flash_fwd_launch_template.h),,$(error FA3=$(FA3) holds no \
	hopper/flash_fwd_launch_template.h: it must be a checkout of flash-attention that has FlashAttention-3))
$(if $(wildcard $(CUTLASS)/include/cutlass/cutlass.h),,$(error CUTLASS=$(CUTLASS) holds no \
	include/cutlass/cutlass.h: run `git submodule update --init csrc/cutlass` in $(FA3), or name a checkout by \
	CUTLASS=))
$(if $(wildcard $(if $(CUDA),$(CCCL)/cuda/std/utility,.)),,$(error CUDA=$(CUDA) holds no include/cccl: \
	it must be a toolkit of CUDA 13 or later))
$(eval $(call stamp,$(BUILD)/flags/fa3,$$(NVCC) $$(ALL_FA3FLAGS)))
$(eval $(call stamp,$(BUILD)/flags/fa3.list,$$(FA3_KERNELS) $$(FA3_BACKWARD_KERNELS) $$(FA3_LIBRARY)))
-include $(wildcard $(FA3_BUILD)/*.d)
$(if $(filter e4m3_%,$(FA3_KERNELS)),$(if $(filter-out e4m3_%,$(FA3_KERNELS)),$(error FA3_KERNELS: kernels of e4m3 \
	must not be combined with others)))
endif
peer-fa3: bin/peers/fa3  ##+ builds FlashAttention-3 as bin/peers/fa3: FA3=its checkout [CUTLASS=] [FA3_KERNELS=]
peer-fa3-backward: $(addprefix bin/peers/fa3_,backward ordered)  ##+ gradients: FA3= [CUTLASS=] [FA3_BACKWARD_KERNELS=]

ELEMENT_fp16 := cutlass::half_t
ELEMENT_bf16 := cutlass::bfloat16_t
ELEMENT_e4m3 := cutlass::float_e4m3_t
OUTPUT_e4m3 := cutlass::bfloat16_t
DTYPE_fp16 := FP16
DTYPE_bf16 := BF16
DTYPE_e4m3 := BF16
CAUSAL_full := false
CAUSAL_causal := true
word_of = $(word $(2),$(subst _, ,$(1)))
size_of = $(patsubst d%,%,$(call word_of,$(1),2))
cluster_of = $(patsubst x%,%,$(call word_of,$(1),4))
define fa3_kernel  # $(1) a word of FA3_KERNELS
$(if $(and $(ELEMENT_$(call word_of,$(1),1)),$(CAUSAL_$(call word_of,$(1),3)),$(filter 64 96 128 192 256,$(call \
	size_of,$(1))),$(filter 1 2,$(call cluster_of,$(1)))),,$(error FA3_KERNELS: '$(1)' is no kernel; expected \
	words such as fp16_d128_full_x2: fp16, bf16 or e4m3, the head size, full or causal, clusters of 1 or 2))
$(FA3_BUILD)/$(1).o: harness/peers/fa3_kernel.cu $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$@)$$(parts) $(NVCC) $$(ALL_FA3FLAGS) -DFA3_NAME=fa3_$(1) -DFA3_D_HEAD=$(call size_of,$(1)) \
		-DFA3_ELEMENT=$(ELEMENT_$(call word_of,$(1),1)) -DFA3_CAUSAL=$(CAUSAL_$(call word_of,$(1),3)) \
		-DFA3_OUTPUT=$(or $(OUTPUT_$(call word_of,$(1),1)),$(ELEMENT_$(call word_of,$(1),1))) \
		-DFA3_CLUSTER=$(call cluster_of,$(1)) -MD -MP -MF $$(@:.o=.d) -MT $$@ \
		-c -o $$(part) $$<; $$(whole)
endef
$(foreach k,$(FA3_KERNELS),$(eval $(call fa3_kernel,$k)))

fa3_row = KERNEL(fa3_$(1), $(DTYPE_$(call word_of,$(1),1)), $(call size_of,$(1)), $(CAUSAL_$(call \
	word_of,$(1),3)), $(call cluster_of,$(1)))
$(FA3_BUILD)/kernels.h: $(BUILD)/flags/fa3.list harness/peers/peers.mk
	@mkdir -p $(@D)
	@$(parts) { echo '#define FA3_LIBRARY "$(strip $(FA3_LIBRARY))"'; \
	   echo '#define FA3_E4M3 $(if $(filter e4m3_%,$(FA3_KERNELS)),1,0)'; \
	   echo '#define FA3_KERNELS $(foreach k,$(FA3_KERNELS),$(call fa3_row,$k))'; } >$(part); $(whole)
$(FA3_BUILD)/about.h: harness/peers/peers.mk
	@mkdir -p $(@D)
	@$(parts) for pair in VERSION=fa3 NAME=FlashAttention-3 TITLE=FlashAttention-3 PARENT= IDEA= CONFIG= OTHERS= \
		SERVING= ARCH=sm_90a; do echo "#define FL_$${pair%%=*} \"$${pair#*=}\""; done >$(part); \
		echo '#define FL_PEER fl_fa3' >>$(part); $(whole)
$(FA3_BUILD)/about.o: harness/about.c $(FA3_BUILD)/about.h $(BUILD)/revision.h $(BUILD)/toolkit.h $(BUILD)/flags/cc
	$(call say,CC,$@)$(call compile,-I$(FA3_BUILD) -I$(BUILD))
$(FA3_BUILD)/fa3_call.o: harness/peers/fa3_call.cu $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(parts) $(NVCC) $(ALL_FA3FLAGS) -MD -MP -MF $(@:.o=.d) -MT $@ -c -o $(part) $<; $(whole)
$(FA3_BUILD)/fa3.o: harness/peers/fa3.c $(FA3_BUILD)/kernels.h $(BUILD)/flags/cc
	$(call say,CC,$@)$(call compile,-I$(FA3_BUILD))
bin/peers/fa3: $(FA3_BUILD)/fa3.o $(FA3_BUILD)/fa3_call.o $(FA3_BUILD)/about.o $(FA3_KERNELS:%=$(FA3_BUILD)/%.o) \
		$(BUILD)/device/90a/code.o $(BUILD)/harness/main.o $(OBJECTS) $(BUILD)/flags/ld
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(CC) $(LDFLAGS) -o $(part) $(filter %.o,$^) $(firstword $(wildcard \
		$(TOOLKIT)/lib64/libcudart_static.a $(TOOLKIT)/lib/libcudart_static.a)) \
		-static-libgcc -l:libstdc++.a -lrt $(ALL_LDLIBS) $(linked)

# ---- its backward pass ----

ORDERED_any := false
ORDERED_ordered := true
define fa3_backward_kernel  # $(1) a word of FA3_BACKWARD_KERNELS
$(if $(and $(ELEMENT_$(call word_of,$(1),1)),$(CAUSAL_$(call word_of,$(1),3)),$(filter 64 128 256,$(call \
	size_of,$(1))),$(ORDERED_$(call word_of,$(1),4))),,$(error FA3_BACKWARD_KERNELS: '$(1)' is no kernel; expected \
	words such as bf16_d128_full_any: fp16 or bf16, the head size, full or causal, any or ordered))
$(FA3_BUILD)/$(1).o: harness/peers/fa3_backward_kernel.cu $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$@)$$(parts) $(NVCC) $$(ALL_FA3FLAGS) -DFA3_NAME=fa3_$(1) -DFA3_D_HEAD=$(call size_of,$(1)) \
		-DFA3_ELEMENT=$(ELEMENT_$(call word_of,$(1),1)) -DFA3_CAUSAL=$(CAUSAL_$(call word_of,$(1),3)) \
		-DFA3_IN_ORDER=$(ORDERED_$(call word_of,$(1),4)) -MD -MP -MF $$(@:.o=.d) -MT $$@ \
		-c -o $$(part) $$<; $$(whole)
endef
$(foreach k,$(FA3_BACKWARD_KERNELS),$(eval $(call fa3_backward_kernel,$k)))

fa3_backward_row = KERNEL(fa3_$(1), $(DTYPE_$(call word_of,$(1),1)), $(call size_of,$(1)), $(CAUSAL_$(call \
	word_of,$(1),3)), $(ORDERED_$(call word_of,$(1),4)))
$(FA3_BUILD)/backward/kernels.h: $(BUILD)/flags/fa3.list harness/peers/peers.mk
	@mkdir -p $(@D)
	@$(parts) { echo '#define FA3_LIBRARY "$(strip $(FA3_LIBRARY))"'; echo '#define FA3_KERNELS $(foreach \
		k,$(FA3_BACKWARD_KERNELS),$(call fa3_backward_row,$k))'; } >$(part); $(whole)
$(FA3_BUILD)/fa3_backward.o: harness/peers/fa3_backward.c $(FA3_BUILD)/backward/kernels.h $(BUILD)/flags/cc
	$(call say,CC,$@)$(call compile,-I$(FA3_BUILD)/backward)
$(FA3_BUILD)/fa3_backward_call.o: harness/peers/fa3_backward_call.cu $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(parts) $(NVCC) $(ALL_FA3FLAGS) -MD -MP -MF $(@:.o=.d) -MT $@ -c -o $(part) $<; $(whole)
define fa3_backward_peer  # $(1) its name
$(FA3_BUILD)/$(1)/about.h: harness/peers/peers.mk
	@mkdir -p $$(@D)
	@$$(parts) for pair in VERSION=$(1) NAME=FlashAttention-3 TITLE=FlashAttention-3 PARENT= IDEA= CONFIG= OTHERS= \
		SERVING= ARCH=sm_90a; do echo "#define FL_$$$${pair%%=*} \"$$$${pair#*=}\""; done >$$(part); \
		echo '#define FL_PEER fl_$(1)' >>$$(part); $$(whole)
$(FA3_BUILD)/$(1)/about.o: harness/about.c $(FA3_BUILD)/$(1)/about.h $(BUILD)/revision.h $(BUILD)/toolkit.h \
		$(BUILD)/flags/cc
	$$(call say,CC,$$@)$$(call compile,-I$(FA3_BUILD)/$(1) -I$(BUILD))
bin/peers/$(1): $(FA3_BUILD)/fa3_backward.o $(FA3_BUILD)/fa3_backward_call.o $(FA3_BUILD)/$(1)/about.o \
		$(FA3_BACKWARD_KERNELS:%=$(FA3_BUILD)/%.o) $(BUILD)/device/90a/code.o \
		$(BUILD)/harness/main.o $(OBJECTS) \
		$(BUILD)/flags/ld
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)$$(parts) $$(CC) $$(LDFLAGS) -o $$(part) $$(filter %.o,$$^) $$(firstword $$(wildcard \
		$(TOOLKIT)/lib64/libcudart_static.a $(TOOLKIT)/lib/libcudart_static.a)) \
		-static-libgcc -l:libstdc++.a -lrt $$(ALL_LDLIBS) $$(linked)
endef
$(foreach name,fa3_backward fa3_ordered,$(eval $(call fa3_backward_peer,$(name))))


# ---- as servers call it: bin/peers/libfa3_serving.so, for python/tools/gpu_serving.py and gpu_fp8_errors.py ----

# NAME_VARLEN_PAGES_SPLIT_CAUSAL_LOCAL_PACK, a letter for each: t or f. Of bf16, but for the one named e4m3.
FA3_SERVING := causal_f_f_f_t_f_f window_f_f_f_f_t_f packed_t_f_f_t_f_f packed-group_t_f_f_t_f_t \
	packed-pages_t_t_f_t_f_t few_f_f_f_f_f_t few-split_f_f_t_f_f_t few-lengths_t_f_t_f_f_t few-pages_t_t_t_f_f_t \
	e4m3_f_f_f_f_f_f
truth_t := true
truth_f := false
FA3_SERVING_FLAGS = $(ALL_FA3FLAGS) -Xcompiler -fPIC
define fa3_serving_kernel  # $(1) a word of FA3_SERVING, $(2) its name
$(FA3_BUILD)/serving/$(2).o: harness/peers/fa3_serving_kernel.cu $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$@)$$(parts) $(NVCC) $$(FA3_SERVING_FLAGS) -DFA3_NAME=fa3_$(subst -,_,$(2)) \
		-DFA3_VARLEN=$(truth_$(call word_of,$(1),2)) -DFA3_PAGES=$(truth_$(call word_of,$(1),3)) \
		-DFA3_SPLIT=$(truth_$(call word_of,$(1),4)) -DFA3_CAUSAL=$(truth_$(call word_of,$(1),5)) \
		-DFA3_LOCAL=$(truth_$(call word_of,$(1),6)) -DFA3_PACK=$(truth_$(call word_of,$(1),7)) \
		-DFA3_ELEMENT=$(or $(ELEMENT_$(2)),$(ELEMENT_bf16)) -c -o $$(part) $$<; $$(whole)
endef
$(foreach k,$(FA3_SERVING),$(eval $(call fa3_serving_kernel,$k,$(call word_of,$k,1))))
FA3_SERVING_OBJECTS := $(foreach k,$(FA3_SERVING),$(FA3_BUILD)/serving/$(call word_of,$k,1).o) \
	$(FA3_BUILD)/serving/combine.o $(FA3_BUILD)/serving/prepare.o $(FA3_BUILD)/serving/call.o
$(FA3_BUILD)/serving/combine.o: harness/peers/fa3_serving_kernel.cu
$(FA3_BUILD)/serving/call.o: harness/peers/fa3_serving.cu
$(FA3_BUILD)/serving/prepare.o: $(FA3)/hopper/flash_prepare_scheduler.cu
$(addprefix $(FA3_BUILD)/serving/,combine.o call.o prepare.o): $(BUILD)/flags/fa3 | $(COMPILER)
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(parts) $(NVCC) $(FA3_SERVING_FLAGS) $(if $(filter %/combine.o,$@),-DFA3_COMBINE \
		-DFA3_NAME=fa3_combine) -c -o $(part) $(filter %.cu,$^); $(whole)
peer-fa3-serving: bin/peers/libfa3_serving.so  ##+ builds a library for gpu_serving.py: FA3= [CUTLASS=]
bin/peers/libfa3_serving.so: $(FA3_SERVING_OBJECTS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(parts) $(NVCC) -shared -o $(part) $^ $(linked)
