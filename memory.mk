# How fast a memory of 100,000 chunks recalls, and how much 8 bits lose (docs/performance.md).
$(BUILD)/memory_bench: $(call obj,bench/memory_bench.c) $(BUILD)/libtern.a
	@echo "  link  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)
.PHONY: bench-memory
bench-memory: $(BUILD)/memory_bench ## recall from 100,000 chunks: milliseconds, and how much 8-bit vectors lose
	rm -rf $(BUILD)/bench.memory
	$(BUILD)/memory_bench $(BUILD)/bench.memory
