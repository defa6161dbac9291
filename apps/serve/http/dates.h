// Dates as RFC 3339 has them, with a fraction.
#ifndef TERN_SERVE_DATES_H
#define TERN_SERVE_DATES_H

#include <time.h>
#include "base/json/json_write.h"

void date_write(const struct timespec *t, char out[40]);
void date_put(tern_json_writer *w, const char *key, time_t seconds);

#endif
