// See permission.h.
#include "apps/agent/permission.h"

#include <string.h>

bool permission_fits(const char *pattern, const char *name) {
    size_t n = strlen(pattern);
    return n && pattern[n - 1] == '*' ? !strncmp(pattern, name, n - 1) : !strcmp(pattern, name);
}

const char *permission_check(permission *p, size_t tool, const char *name, bool is_harmless,
                             bool *is_allowed) {
    *is_allowed = true;
    if (is_harmless) return "harmless";
    if (p->all) return "listed";
    for (size_t i = 0; i < p->n_allowed; i++)
        if (permission_fits(p->allowed[i], name)) return "listed";
    if (p->always[tool]) return "always";
    permission_answer a = p->ask ? p->ask(p->user, name) : PERMISSION_NO;
    if (a == PERMISSION_ALWAYS) p->always[tool] = true;
    *is_allowed = a != PERMISSION_NO;
    return *is_allowed ? "asked" : p->ask ? "refused" : "unasked";
}
