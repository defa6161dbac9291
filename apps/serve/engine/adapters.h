// The LoRA adapters of a server's model (`tern serve --lora`): what clients call them, and how much
// of each is applied for requests that choose none. Only the loop's thread uses them.
#ifndef TERN_SERVE_ADAPTERS_H
#define TERN_SERVE_ADAPTERS_H

#include "base/strbuf.h"
#include "tern.h"

typedef struct adapters {
    const tern_lora *list; // [n] as the command line has them
    size_t n;
    tern_str names[TERN_LORAS_MAX];
    float scales[TERN_LORAS_MAX]; // of requests that choose none
} adapters;

// A file's or folder's name, without ".gguf".
tern_str name_of_path(const char *path);
// list: stays the caller's. Two of one name are refused, as is one with the name of the model.
tern_status adapters_open(adapters *a, const tern_lora *list, size_t n, const char *model,
                          tern_error *err);
// Its number; SIZE_MAX: there is none of that name.
size_t adapters_find(const adapters *a, tern_str name);
// The scales [n] with this adapter alone: the command line's, or 1 where that is 0.
void adapters_alone(const adapters *a, size_t which, float *scales);

#endif
