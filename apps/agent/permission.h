// Whether a call may be run: what the user has allowed in advance, and what he says when asked.
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
    const char *const *allowed; // [n_allowed] names; one that ends with '*' stands for all that
    size_t n_allowed;           // begin like it
    bool all;
    permission_answer (*ask)(void *user, const char *name); // NULL: there is nobody to be asked
    void *user;
    bool *always; // [n_tools] the caller's: those that the user has allowed for good
} permission;

// How a call of the tool came to be allowed, in a word: "harmless", "listed", "asked", "always". Or
// why not: "refused" by the user, "unasked" where there is nobody. *is_allowed says which.
const char *permission_check(permission *p, size_t tool, const char *name, bool is_harmless,
                             bool *is_allowed);
bool permission_fits(const char *pattern, const char *name);

#endif
