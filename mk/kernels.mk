# The kernels alone: base and kernels with their tests, in a program that needs no other library.
# `make check-kernels` runs it here; `make check-kernels-arm` cross-compiles it for 64-bit ARM and
# runs it under qemu, where the NEON kernels are compared with the scalar ones.
# `make test-arches` has the engine's tests, for more processors.

ARM_CC   ?= aarch64-linux-gnu-gcc
ARM_ROOT ?= /usr/aarch64-linux-gnu
RUN      ?=

KERNEL_PARTS := src/base/% src/kernels/cpu/float/% src/kernels/cpu/ternary/% src/kernels/cpu/head/% src/kernels/cpu/gemm/% \
                src/kernels/cpu/grouped/% \
                src/kernels/cpu/select.c
KERNEL_SRC := $(filter $(KERNEL_PARTS),$(LIB_SRC))
KERNEL_TEST_SRC := tests/support/harness.c tests/support/harness_files.c tests/support/blobs.c $(filter $(KERNEL_PARTS),$(TEST_SRC))
KERNEL_OBJ := $(call obj,$(KERNEL_SRC))

.PHONY: check-kernels check-kernels-arm
$(BUILD)/kernel_tests: $(KERNEL_OBJ) $(call obj,$(KERNEL_TEST_SRC))
	@echo "  link  $@"
	$(Q)$(CC_LINK) -o $@ $^ -lm -pthread
check-kernels: $(BUILD)/kernel_tests ## every kernel against the scalar reference
	$(RUN) $(BUILD)/kernel_tests -v
ARM_MAKE = $(MAKE) CC=$(ARM_CC) BUILD=$(BUILD)/arm IMAGES= SOUNDS=
.PHONY: build-kernels-arm
build-kernels-arm:
	+$(ARM_MAKE) $(BUILD)/arm/kernel_tests
check-kernels-arm: ## the same for 64-bit ARM, under qemu
	+$(ARM_MAKE) check-kernels RUN="qemu-aarch64 -L $(ARM_ROOT)"

# ---- The engine on other processors --------------------------------------------------------------

# Debian's cross compilers and qemu; PCRE2 and utf8proc from its sources (tools/dist), none of tern's parts.
# Big-endian machines refuse models.
# Without TESTS those that take a moment here: qemu needs some thirty times as long.
ARCH_TESTS := dtype_ gguf_ json_ graph_ schema_ sampl sequence_ head_ '!abilities_' '!training_' '!datagen_' '!session_'
ARCHES ?= aarch64 riscv64 arm s390x
ARCH_aarch64 := aarch64-linux-gnu
ARCH_riscv64 := riscv64-linux-gnu
ARCH_arm     := arm-linux-gnueabihf
ARCH_s390x   := s390x-linux-gnu
arch_dir  = $(abspath $(BUILD))/arch/$(1)
arch_make = PKG_CONFIG_LIBDIR=$(arch_dir)/lib/pkgconfig $(MAKE) CC=$(ARCH_$(1))-gcc BUILD=$(BUILD)/arch/$(1) LAZY= OPT=-O1 KERNEL_OPT=-O2 \
    CPPFLAGS=-I$(arch_dir)/include LDFLAGS=-L$(arch_dir)/lib RUN="qemu-$(1) -L /usr/$(ARCH_$(1))"
$(BUILD)/arch_story: $(call obj,tests/arches/story.c) $(BUILD)/libtern.a
	$(link)
define arch_rules
.PHONY: build-arch-$(1) test-arch-$(1)
build-arch-$(1):
	@command -v $(ARCH_$(1))-gcc qemu-$(1) >/dev/null || tools/install_deps.sh gcc-$(ARCH_$(1)) qemu-user
	tools/dist/libraries.sh $(arch_dir) $(ARCH_$(1))-gcc $(1) pcre2 utf8proc
	+$$(call arch_make,$(1)) $(if $(filter s390x,$(1)),,$(BUILD)/arch/$(1)/tern_tests) $(BUILD)/arch/$(1)/arch_story
test-arch-$(1): build-arch-$(1) $(BUILD)/arch_story
	tests/arches/run.sh $(BUILD) $(BUILD)/arch/$(1) $(1) /usr/$(ARCH_$(1)) $(TEST_JOBS) $(or $(TESTS),$(ARCH_TESTS))
endef
$(foreach a,$(ARCHES),$(eval $(call arch_rules,$(a))))
.PHONY: test-arches
test-arches: $(ARCHES:%=test-arch-%) ## the engine's tests for ARM (64 and 32 bits), RISC-V and a big-endian machine, under qemu
