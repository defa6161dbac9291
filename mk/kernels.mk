# The kernels alone: base and kernels with their tests, in a program that needs no other library.
# `make check-kernels` runs it here; `make check-kernels-arm` cross-compiles it for 64-bit ARM and
# runs it under qemu, where the NEON kernels are compared with the scalar ones.

ARM_CC   ?= aarch64-linux-gnu-gcc
ARM_ROOT ?= /usr/aarch64-linux-gnu
RUN      ?=

KERNEL_PARTS := src/base/% src/kernels/cpu/float/% src/kernels/cpu/ternary/% src/kernels/cpu/head/% src/kernels/cpu/gemm/% \
                src/kernels/cpu/grouped/% \
                src/kernels/cpu/select.c
KERNEL_SRC := $(filter $(KERNEL_PARTS),$(LIB_SRC))
KERNEL_TEST_SRC := tests/support/harness.c tests/support/blobs.c $(filter $(KERNEL_PARTS),$(TEST_SRC))
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
