// Whether a call may run: the tools that the user has allowed in advance, and his answer when
// asked.
#ifndef TERN_AGENT_PERMISSION_H
#define TERN_AGENT_PERMISSION_H

#include <stdbool.h>
#include <stddef.h>

typedef enum permission_answer {
    PERMISSION_NO,
    PERMISSION_YES,
    PERMISSION_ALWAYS
} permission_answer;

typedef struct permission {     // zero-initialise
    const char *const *allowed; // [n_allowed] names; one that ends with '*' is a prefix
    size_t n_allowed;
    bool all;
    permission_answer (*ask)(void *user, const char *name); // NULL: there is no user to ask
    void *user;
    bool *always; // [n_tools] the caller's: tools that the user has allowed for good
} permission;

// Why a call of the tool is allowed, in a word: "harmless", "listed", "asked", "always"; or why it
// is not: "refused" by the user, "unasked" if there is no user. *is_allowed says which.
const char *permission_check(permission *p, size_t tool, const char *name, bool is_harmless,
                             bool *is_allowed);
bool permission_fits(const char *pattern, const char *name);

#endif
