// Images of requests: found in their messages, and encoded by the model on a task's thread, since
// decoding an image and computing its rows both take long.
#ifndef TERN_SERVE_REQUEST_IMAGES_H
#define TERN_SERVE_REQUEST_IMAGES_H

#include "apps/serve/request/fields.h"
#include "tern_image.h"

// More than a conversation needs; fewer fill the context.
#define IMAGES_MAX 256
// For an image as stored; a phone's photo has 50 million. This limits memory to 200 MB during
// decoding; the model gets a smaller image (tern_image_tokens_params).
#define IMAGE_PIXELS_MAX (64 << 20)

typedef struct image {
    tern_str base64; // the file's bytes, in the request
    bool is_small;   // the client wants it cheap: "detail": "low"
} image;

typedef struct images {
    image *list; // [n] in the order of their placeholders
    size_t n, capacity;
    const struct heard *heard; // the request's recordings (request_sounds.h)
} images;

// Adds the image of a part of a message. False: e says why.
bool images_add_part(images *p, const fields *part, const char *param);
// The same for bare base64 or a data: URL (Ollama, llama-server).
bool images_add(images *p, tern_str data, const char *param, api_error *e);
// A copy that owns its bytes, for another thread. False: no memory.
bool images_copy(images *to, const images *from);
void images_free(images *p); // the list
void images_free_copy(images *p);

// Encodes the images, on the task's thread. If they need more tokens than the context holds, it
// fails without encoding the rest. image_tokens [p->n]; the caller closes those that were opened,
// also if it fails. Stops when the task is cancelled.
bool images_see(const images *p, const served *s, task *by, tern_image_tokens **image_tokens,
                const char *param, api_error *e);

#endif
