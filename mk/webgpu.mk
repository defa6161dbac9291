# WebGPU: the kernels' texts are embedded at build; the library is loaded at run time. `make
# webgpu-native` fetches one from npm (Dawn, for this machine) to where the program looks for it.

WGSL := $(sort $(wildcard src/kernels/webgpu/wgsl/*.wgsl src/kernels/webgpu/wgsl/*/*.wgsl src/kernels/webgpu/*/wgsl/*.wgsl))
$(BUILD)/gen/webgpu_wgsl.inc: tools/web/embed_wgsl.sh $(WGSL)
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/web/embed_wgsl.sh $(WGSL) > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/src/kernels/webgpu/device/gpu_shaders.o: $(BUILD)/gen/webgpu_wgsl.inc

WEBGPU_PACKAGE ?= bun-webgpu-linux-x64@0.1.7
.PHONY: webgpu-native test-webgpu
webgpu-native: $(BUILD)/webgpu/libwebgpu_wrapper.so ## a WebGPU library (Dawn, 20 MB from npm) beside the program
$(BUILD)/webgpu/libwebgpu_wrapper.so:
	@mkdir -p $(@D)
	cd $(@D) && npm pack --silent $(WEBGPU_PACKAGE) && tar xzf *.tgz --strip-components=1 && rm *.tgz
	@touch $@

# A library of the next generation of the interface, with matrix units: Dawn inside npm's addon for Node.
WEBGPU_NEWER_PACKAGE ?= webgpu@0.6.2
.PHONY: webgpu-newer check-webgpu-newer
webgpu-newer: $(BUILD)/webgpu-newer/libwebgpu_dawn.so ## a newer, faster Dawn (36 MB from npm, Linux on x86-64)
$(BUILD)/webgpu-newer/libwebgpu_dawn.so: tools/web/dawn_node.c src/kernels/webgpu/device/wgpu_api.h
	@mkdir -p $(@D)
	cd $(@D) && { test -f dawn.node || { npm pack --silent $(WEBGPU_NEWER_PACKAGE) && \
	    tar xzf *.tgz --strip-components=3 package/dist/linux-x64/dawn.node && rm *.tgz; }; }
	$(CC_LINK) -shared -o $@ $< -ldl
check-webgpu-newer: $(BUILD)/tern_tests webgpu-newer ## the WebGPU tests with that library
	TERN_WEBGPU_LIB=$(abspath $(BUILD)/webgpu-newer/libwebgpu_dawn.so) $(BUILD)/tern_tests webgpu gpu

test-webgpu: all $(BUILD)/tern_tests ## all of the GPU's tests, on a GPU or on chromium's SwiftShader (minutes)
	TERN_TEST_LONG=1 $(BUILD)/tern_tests -j $(TEST_JOBS) -v gpu_
