# Installation under PREFIX, with completions and a service of systemd.

.PHONY: install uninstall
STRIP  ?= strip
TO     := $(DESTDIR)$(PREFIX)
SHELLS := bash zsh fish
# A service of systemd, where the server is built.
UNIT := $(if $(SERVE_NEEDS),lib/systemd/system/tern@.service)
completion_bash := share/bash-completion/completions/tern
completion_zsh  := share/zsh/site-functions/_tern
completion_fish := share/fish/vendor_completions.d/tern.fish
$(SHELLS:%=$(BUILD)/completions/%): $(BUILD)/completions/%: tools/completions.sh $(BUILD)/tern
	@mkdir -p $(@D)
	@echo "  shell $@"
	$(Q)tools/completions.sh $* $(BUILD)/tern >$@.tmp && mv $@.tmp $@

# What `tern chat stories` finds, and the drafts that lie beside it.
CARRIED := $(wildcard models/*.gguf) models/chain-buckets.bin
# Names may have spaces, which pkg-config needs escaped.
empty :=
pc_prefix = $(subst $(empty) ,\\ ,$(PREFIX))
cmake_libs = $(subst $(empty) ,;,$(strip $(LIBS)))
install: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%) ## to PREFIX (/usr/local), under DESTDIR
	install -d "$(TO)/bin" "$(TO)/lib/pkgconfig" "$(TO)/lib/cmake/tern" "$(TO)/include" "$(TO)/share/man/man1" "$(TO)/share/tern/models"
	install -m 755 $(BUILD)/tern "$(TO)/bin/tern"
	install -m 644 $(PUBLIC) "$(TO)/include/"
	install -m 644 $(BUILD)/public/libtern.a "$(TO)/lib/libtern.a"
	install -m 755 $(BUILD)/libtern.so "$(TO)/lib/libtern.so.$(VERSION)"
	$(STRIP) "$(TO)/bin/tern" "$(TO)/lib/libtern.so.$(VERSION)"
	$(STRIP) -g "$(TO)/lib/libtern.a"
	ln -sf libtern.so.$(VERSION) "$(TO)/lib/libtern.so.0"
	ln -sf libtern.so.0 "$(TO)/lib/libtern.so"
	sed -e 's|@PREFIX@|$(pc_prefix)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
	    tools/tern.pc.in > "$(TO)/lib/pkgconfig/tern.pc"
	for file in tern-config tern-config-version; do \
	    sed -e 's|@VERSION@|$(VERSION)|' -e 's|@CMAKE_LIBS@|$(cmake_libs)|' tools/$$file.cmake.in > "$(TO)/lib/cmake/tern/$$file.cmake" || exit 1; \
	done
	$(if $(UNIT),install -d "$(TO)/$(dir $(UNIT))" && sed -e 's|@PREFIX@|$(PREFIX)|' apps/serve/systemd/tern@.service > "$(TO)/$(UNIT)")
	install -m 644 docs/tern.1 "$(TO)/share/man/man1/tern.1"
	install -m 644 $(CARRIED) "$(TO)/share/tern/models/"
	$(foreach s,$(SHELLS),install -D -m 644 $(BUILD)/completions/$(s) "$(TO)/$(completion_$(s))" &&) true
uninstall: ## remove what install installed
	rm -f "$(TO)/bin/tern" $(PUBLIC:include/%="$(TO)/include/%") "$(TO)"/lib/libtern.* "$(TO)/lib/pkgconfig/tern.pc" "$(TO)"/lib/cmake/tern/tern-config*.cmake \
	    "$(TO)/share/man/man1/tern.1" $(CARRIED:models/%="$(TO)/share/tern/models/%") $(if $(UNIT),"$(TO)/$(UNIT)") $(foreach s,$(SHELLS),"$(TO)/$(completion_$(s))")
	rmdir "$(TO)/share/tern/models" "$(TO)/share/tern" "$(TO)/lib/cmake/tern" 2>/dev/null || true
.PHONY: install-test
install-test: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%)
	tests/install_test.sh "$(MAKE)" $(CC)
