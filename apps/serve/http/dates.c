#include "apps/serve/http/dates.h"

#include <stdio.h>

void date_write(const struct timespec *t, char out[40]) {
    struct tm parts;
    char date[24];
    gmtime_r(&t->tv_sec, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, 40, "%s.%09ldZ", date, t->tv_nsec);
}

void date_put(tern_json_writer *w, const char *key, time_t seconds) {
    char date[40];
    const struct timespec t = {.tv_sec = seconds};
    date_write(&t, date);
    tern_json_put_text(w, key, date);
}
