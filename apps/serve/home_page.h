// The page at /: files embedded in the program (apps/serve/page, built from web/server).
#ifndef TERN_SERVE_HOME_PAGE_H
#define TERN_SERVE_HOME_PAGE_H

#include "apps/serve/request/request.h"

// GET /: the page for browsers, which ask for text/html; for other clients the text that Ollama
// sends and its clients check. Without the page (serve_desc.no_page) that text for all.
void page_home(request *req);
void page_file(request *req); // /page/NAME

#endif
