# Programs that measure. docs/performance.md has what they said.

.PHONY: bench bench-kernels bench-memory
MODEL ?= $(BUILD)/2b.gguf
bench: all $(MODEL) ## speed against the machine's limits; MODEL=file.gguf (else random weights of 2B-4T's shape)
	$(BUILD)/tern bench -m $(MODEL) -p 512 -n 128 -t 1,2 -r 5

# Kernels, which need no library; and others.
KERNEL_BENCHES := kernel ternary grouped head
BENCHES := train grammar memory decode
.SECONDEXPANSION:
$(KERNEL_BENCHES:%=$(BUILD)/%_bench): $(BUILD)/%_bench: $(BUILD)/obj/bench/%_bench.o $$(KERNEL_OBJ)
	$(link)
$(BENCHES:%=$(BUILD)/%_bench): $(BUILD)/%_bench: $(BUILD)/obj/bench/%_bench.o $(BUILD)/libtern.a
	$(link)
$(BUILD)/kernel_bench: $(call obj,src/kernels/cpu/float/checks/float_calls_check.c)
$(BUILD)/train_bench: $(call obj,bench/train_cpu.c)
$(BUILD)/grammar_bench: $(call obj,tests/support/grammar_data.c)
$(BUILD)/decode_bench: $(call obj,src/kernels/single_test.c tests/support/tiny_model.c tests/support/real_shapes.c)

bench-kernels: $(BUILD)/kernel_bench ## time the kernels: then $(BUILD)/kernel_bench -t 2
	$(BUILD)/kernel_bench
bench-memory: $(BUILD)/memory_bench ## recall from 100,000 chunks: milliseconds, and how much 8-bit vectors lose
	rm -rf $(BUILD)/bench.memory
	$(BUILD)/memory_bench $(BUILD)/bench.memory
