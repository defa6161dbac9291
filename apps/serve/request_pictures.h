// Pictures of requests: found in their messages, and looked at by the model on an errand's thread,
// since both to decode one and to compute its rows take long.
#ifndef TERN_SERVE_REQUEST_PICTURES_H
#define TERN_SERVE_REQUEST_PICTURES_H

#include "apps/serve/fields.h"
#include "tern_media.h"

// As much as any conversation has; the context is full of fewer.
#define PICTURES_MAX 256
// Of a picture as it is stored: what a phone makes has 50 million. It is a limit of memory, 200 MB
// while it is decoded; what the model is shown is smaller (tern_sight_params).
#define PICTURE_PIXELS_MAX (64 << 20)

typedef struct picture {
    tern_str base64; // the file's bytes, in the request
    bool is_small;   // the client wants it cheap: "detail": "low"
} picture;

typedef struct pictures {
    picture *list; // [n] in the order of their places
    size_t n, capacity;
} pictures;

// Whether a part of a message is of a kind that pictures have, in any interface's words:
// "image_url" and "input_image" (OpenAI), "image" (Anthropic).
bool picture_is_part(tern_str type);
// Notes the picture of such a part. False: e says why.
bool pictures_add_part(pictures *p, const fields *part, const char *param);
// The same of one that is base64 alone, or a data: URL (Ollama, llama-server).
bool pictures_add(pictures *p, tern_str data, const char *param, api_error *e);
// A copy that owns its bytes, for another thread. False: no memory.
bool pictures_copy(pictures *to, const pictures *from);
void pictures_free(pictures *p); // the list
void pictures_free_copy(pictures *p);

// On any thread: shows them to the model. n_rows_max: more tokens than that do not fit, and the
// rest is not looked at. sights [p->n]; those that were opened are the caller's to close, also if
// it fails. It stops where the thread is cancelled.
bool pictures_see(const pictures *p, const served *s, size_t n_rows_max, tern_sight **sights,
                  const char *param, api_error *e);

#endif
