# Tests in real browsers: Chromium, Firefox and WebKitGTK, where they are installed.
WEB_JOBS ?= 2
WEB_AGAIN ?=
.PHONY: test-web bench-web
test-web: all web $(BUILD)/make_tiny_model ## the module, the package and the pages in headless browsers (minutes; NAME=pattern)
	node tests/web/run.mjs -j $(WEB_JOBS) $(WEB_AGAIN) $(if $(NAME),"$(NAME)")
bench-web: all web $(BUILD)/make_tiny_model ## speed in Chromium against the native engine on the same cores (minutes)
	node tests/web/bench.mjs
