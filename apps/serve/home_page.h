// The page at /: files that the program carries (apps/serve/page, made of web/server).
#ifndef TERN_SERVE_HOME_PAGE_H
#define TERN_SERVE_HOME_PAGE_H

#include "apps/serve/request.h"

// GET /: the page for browsers, which ask for text/html; for others Ollama's words, for which its
// clients look. Without the page (serve_desc.no_page) those for all.
void page_home(request *req);
void page_file(request *req); // /page/NAME

#endif
