# WebGPU: the kernels' texts are embedded at build; the library is loaded at run time. `make
# webgpu-native` fetches one from npm (Dawn, for this machine) to where the program looks for it.

WGSL := $(sort $(wildcard src/kernels/webgpu/*.wgsl))
$(BUILD)/gen/webgpu_wgsl.inc: tools/embed_wgsl.sh $(WGSL)
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/embed_wgsl.sh $(WGSL) > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/src/kernels/webgpu/gpu_shaders.o: $(BUILD)/gen/webgpu_wgsl.inc

WEBGPU_PACKAGE ?= bun-webgpu-linux-x64@0.1.7
.PHONY: webgpu-native
webgpu-native: $(BUILD)/webgpu/libwebgpu_wrapper.so ## a WebGPU library (Dawn, 20 MB from npm) beside the program
$(BUILD)/webgpu/libwebgpu_wrapper.so:
	@mkdir -p $(@D)
	cd $(@D) && npm pack --silent $(WEBGPU_PACKAGE) && tar xzf *.tgz --strip-components=1 && rm *.tgz
	@touch $@
