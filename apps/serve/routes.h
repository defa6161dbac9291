// What reading a body needs from its route.
#ifndef TERN_SERVE_ROUTES_H
#define TERN_SERVE_ROUTES_H

#include <stdbool.h>

struct route;
bool route_takes_form(const struct route *r);    // its body is not JSON
bool route_takes_nothing(const struct route *r); // its body may be empty

#endif
