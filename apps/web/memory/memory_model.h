// A model outside this module: the page answers a store's requests, or notes them if it has no
// answer yet (see web_memory.c).
#ifndef TERN_APPS_WEB_MEMORY_MODEL_H
#define TERN_APPS_WEB_MEMORY_MODEL_H

#include "tern.h"
#include "tern_embed.h"

struct tern_model {
    const char *name, *path; // terminated; owned by the caller, like the prompts' names
    int32_t n_dims, max_length;
    tern_embedding_prompt *prompts;
    size_t n_prompts;
};

#endif
