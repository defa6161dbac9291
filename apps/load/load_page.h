// The report as a page.
#ifndef TERN_APPS_LOAD_PAGE_H
#define TERN_APPS_LOAD_PAGE_H

#include "apps/load/load.h"
#include "base/strbuf.h"

void load_put_page(const load_report *report, tern_strbuf *out);

#endif
