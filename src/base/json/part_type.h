// The types of a message's parts, by any interface's names.
#ifndef TERN_BASE_JSON_PART_TYPE_H
#define TERN_BASE_JSON_PART_TYPE_H

#include <stdbool.h>
#include "base/strbuf.h"

// An image: of templates and Anthropic, of OpenAI's older interface, of its newer one.
static inline bool tern_part_is_image(tern_str type) {
    return tern_str_is(type, "image") || tern_str_is(type, "image_url") ||
           tern_str_is(type, "input_image");
}

#endif
