// Prompts for filling in: what is before the cursor, what is after it, and pieces of other files,
// between the marks that the model was trained with (tern_infill_info).
#ifndef TERN_SERVE_INFILL_H
#define TERN_SERVE_INFILL_H

#include "apps/serve/request/generation_request.h"

typedef struct infill_wanted {
    tern_str prefix, begun, suffix; // begun: what stands before the cursor in its line
    const tern_json *extra;         // a list of {"text", "filename"}; NULL: none
    bool is_file;                   // in a repository with these files; else the texts alone
} infill_wanted;

// Adds the prompt, and stops the answer where another file would begin. What does not fit in the
// context is left out: first of the other files, then the farthest of the prefix and the suffix.
// f: of the request.
void generation_add_infill(request *req, const infill_wanted *w, const fields *f);

#endif
