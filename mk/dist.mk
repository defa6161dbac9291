# Programs for Linux machines other than this one, with all that they need inside. x86_64-gnu runs wherever
# glibc 2.28 or newer is, and loads a WebGPU library; x86_64-musl needs no file of the system that it runs on,
# and has no GPU. Their libraries are built from Debian's sources, once (tools/dist).
DIST       := $(abspath $(BUILD))/dist
DIST_KINDS ?= x86_64-gnu x86_64-musl
DIST_FLAGS_x86_64-musl := PIE=-no-pie HARDEN_LINK=-static
# What gcc's kernels ask the processor; tools/dist/stat.c.
DIST_LDFLAGS_x86_64-gnu = $(shell gcc -print-libgcc-file-name) $(DIST)/x86_64-gnu/bin/stat.o
# $(1): kind, $(2): another build folder
dist_make = $(MAKE) BUILD=$(or $(2),$(BUILD)/dist/$(1)/build) CC=$(DIST)/$(1)/bin/cc CFLAGS= OPT=-O3 EXTRA_CFLAGS= LAZY= $(DIST_FLAGS_$(1)) \
    CPPFLAGS="-ffunction-sections -fdata-sections -I$(DIST)/$(1)/include" LDFLAGS="-Wl,--gc-sections -L$(DIST)/$(1)/lib $(DIST_LDFLAGS_$(1))" \
    EDIT_LIBS="-ledit -ltinfo" PKG_CONFIG="env PKG_CONFIG_LIBDIR=$(DIST)/$(1)/lib/pkgconfig pkg-config --static"
dist_tree = $(call dist_make,$(1),$(2)) $(if $(filter %-gnu,$(1)),install,install-program) PREFIX= DESTDIR=$(DIST)/$(1)/$(3)
dist_archive = WEBGPU=$(if $(filter %-gnu,$(1)),$(abspath $(WEBGPU))) tools/dist/archive.sh $(DIST)/$(1)/$(2) tern-$(VERSION)-linux-$(1) $(DIST)/$(1)/licences $(DIST)/$(3)

.PHONY: dist static
dist: $(DIST_KINDS:%=dist-%) ## archives for Linux in build/dist: a program for glibc 2.28, a static one; WEBGPU=DIR adds the library there
static: dist-program-x86_64-musl ## a program that needs no other file, build/dist/x86_64-musl/build/tern
# Also of Windows, where mk/ports.mk makes the program.
define dist_libraries
.PHONY: dist-libraries-$(1)
dist-libraries-$(1):
	tools/dist/compiler.sh $(1) $(DIST)/$(1)
	tools/dist/libraries.sh $(DIST)/$(1) $(DIST)/$(1)/bin/cc $(firstword $(subst -, ,$(1)))
endef
$(foreach k,$(DIST_KINDS) x86_64-windows,$(eval $(call dist_libraries,$(k))))
define dist_rules
.PHONY: dist-program-$(1) dist-$(1) dist-test-$(1) dist-again-$(1)
dist-program-$(1): dist-libraries-$(1)
	+$$(call dist_make,$(1)) $(BUILD)/dist/$(1)/build/tern
dist-$(1): dist-libraries-$(1)
	rm -rf $(DIST)/$(1)/tree
	+$$(call dist_tree,$(1),,tree) >$(DIST)/$(1)/install.log
	$$(call dist_archive,$(1),tree,.)
# The program's tests, those of its parts, and that sources give the same bytes in another folder.
dist-test-$(1): all dist-$(1) dist-again-$(1)
	tools/dist/check_program.sh $(BUILD)/tern $(BUILD)/dist/$(1)/build/tern $(1)
	for script in $$(DIST_TESTS); do $$$$script $(BUILD)/dist/$(1)/build/tern || exit 1; done
dist-again-$(1): dist-$(1)
	rm -rf $(DIST)/$(1)/tree-again $(DIST)/$(1)/build-again
	+$$(call dist_tree,$(1),$(BUILD)/dist/$(1)/build-again,tree-again) >$(DIST)/$(1)/install-again.log
	$$(call dist_archive,$(1),tree-again,$(1)/again)
	cmp $(DIST)/tern-$(VERSION)-linux-$(1).tar.xz $(DIST)/$(1)/again/tern-$(VERSION)-linux-$(1).tar.xz
endef
$(foreach k,$(DIST_KINDS),$(eval $(call dist_rules,$(k))))

# Scripts that `make test` runs with the program of this machine.
DIST_TESTS := tests/memory_test.py tests/hub_test.py tests/serve/serve_access_test.py tests/serve/serve_image_test.py
.PHONY: dist-test
dist-test: $(DIST_KINDS:%=dist-test-%) ## the programs of `make dist`: their text, parts, size, start; and the same bytes twice
