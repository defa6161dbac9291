// A model that is elsewhere: what a store asks of one is answered by the page, which knows the
// answers or notes the questions (web_memory.c says how that goes on).
#ifndef TERN_APPS_WEB_MEMORY_MODEL_H
#define TERN_APPS_WEB_MEMORY_MODEL_H

#include "tern.h"

struct tern_model {
    const char *name, *path; // terminated; the caller's, as the prompts' names are
    int32_t n_dims, max_length;
    tern_embedding_prompt *prompts;
    size_t n_prompts;
};

#endif
