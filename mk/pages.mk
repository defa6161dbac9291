# The npm package and the pages: node, and npm for what builds them (packages/tern/package-lock.json).
#
#     make web-serve SERVE="--port 8081 --no-isolation"
WEB_PAGES = $(WEB)/pages
ENGINE_TS = $(shell find packages/tern/src -name '*.ts' 2>/dev/null)
PAGE_SRC  = $(shell find web -type f ! -path 'web/test/*' 2>/dev/null)

packages/tern/dist/index.js: $(WEB_TOOLS) $(WEB_MODULES) $(WEB_SHADERS) $(ENGINE_TS) packages/tern/build.mjs
	@echo "  npm   packages/tern/dist"
	$(Q)$(NODE) packages/tern/build.mjs
$(WEB_PAGES)/sw.js: packages/tern/dist/index.js $(PAGE_SRC) models/stories.gguf
	@echo "  pages $(WEB_PAGES)"
	$(Q)$(NODE) packages/tern/node_modules/typescript/bin/tsc -p web
	$(Q)$(NODE) web/build.mjs $(WEB_PAGES) --engine packages/tern/dist --model models/stories.gguf

.PHONY: serve-page
serve-page: $(WEB_TOOLS) ## the page of tern serve again: apps/serve/page, of web/server (needs npm)
	$(NODE) web/server/build.mjs
.PHONY: server-images
server-images: all $(WEB_TOOLS) ## the images of the page of tern serve in docs/images again (needs Chromium)
	$(NODE) web/server/images.mjs $(BUILD)/tern

.PHONY: web web-package web-serve test-pages
web-package: packages/tern/dist/index.js ## the npm package: packages/tern/dist
web: $(WEB_PAGES)/sw.js ## everything for the browser: modules, package, pages
web-serve: web ## the pages with the model that the repository carries: open, and it writes
	@$(NODE) web/serve.mjs $(WEB_PAGES) $(SERVE)
test-pages: $(WEB_PAGES)/sw.js ## unit tests of the pages; chromium, if it is installed, uses them like a person
	$(NODE) web/test/run.mjs
	@if command -v chromium >/dev/null; then $(NODE) web/test/drive.mjs $(WEB_PAGES); else echo "left out: there is no chromium"; fi

# Tests in real browsers: Chromium, Firefox and WebKitGTK, where they are installed.
WEB_JOBS ?= 2
WEB_AGAIN ?=
.PHONY: test-web bench-web
test-web: all web $(BUILD)/make_tiny_model ## the module, the package and the pages in headless browsers (minutes; NAME=pattern)
	node tests/web/run.mjs -j $(WEB_JOBS) $(WEB_AGAIN) $(if $(NAME),"$(NAME)")
bench-web: all web $(BUILD)/make_tiny_model ## speed in Chromium against the native engine on the same cores (minutes)
	node tests/web/bench.mjs
