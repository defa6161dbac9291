// Images of requests: found in their messages, and looked at by the model on a task's thread,
// since both to decode one and to compute its rows take long.
#ifndef TERN_SERVE_REQUEST_IMAGES_H
#define TERN_SERVE_REQUEST_IMAGES_H

#include "apps/serve/fields.h"
#include "tern_media.h"

// As much as any conversation has; the context is full of fewer.
#define IMAGES_MAX 256
// Of an image as it is stored: what a phone makes has 50 million. It is a limit of memory, 200 MB
// while it is decoded; what the model is shown is smaller (tern_image_tokens_params).
#define IMAGE_PIXELS_MAX (64 << 20)

typedef struct image {
    tern_str base64; // the file's bytes, in the request
    bool is_small;   // the client wants it cheap: "detail": "low"
} image;

typedef struct images {
    image *list; // [n] in the order of their places
    size_t n, capacity;
} images;

// Whether a part of a message is of a kind that images have, in any interface's words:
// "image_url" and "input_image" (OpenAI), "image" (Anthropic).
bool image_is_part(tern_str type);
// Notes the image of such a part. False: e says why.
bool images_add_part(images *p, const fields *part, const char *param);
// The same of one that is base64 alone, or a data: URL (Ollama, llama-server).
bool images_add(images *p, tern_str data, const char *param, api_error *e);
// A copy that owns its bytes, for another thread. False: no memory.
bool images_copy(images *to, const images *from);
void images_free(images *p); // the list
void images_free_copy(images *p);

// On any thread: shows them to the model. n_rows_max: more tokens than that do not fit, and the
// rest is not looked at. image_tokens [p->n]; those that were opened are the caller's to close,
// also if it fails. It stops where the thread is cancelled.
bool images_see(const images *p, const served *s, size_t n_rows_max,
                tern_image_tokens **image_tokens, const char *param, api_error *e);

#endif
