# Tests in real browsers: Chromium, Firefox and WebKitGTK, where they are installed.
WEB_JOBS ?= 2
.PHONY: test-web bench-web
test-web: all web ## the module, the package and the pages in headless browsers (minutes; NAME=part of a name)
	node tests/web/run.mjs -j $(WEB_JOBS) $(NAME)
