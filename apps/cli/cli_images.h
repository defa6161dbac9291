// Images that are named on a command line.
#ifndef CLI_IMAGES_H
#define CLI_IMAGES_H

#include <stdbool.h>
#include "cli.h"
#include "tern_media.h"

// "-" is standard input. False after printing why one cannot be read; those before it are read.
bool read_images(tern_image *out, const char **paths, int n, bool as_stored);
void free_images(tern_image *images, int n);

// What the model sees of the images, [n] for free_image_tokens; NULL after printing why not.
tern_image_tokens **see_images(tern_model *model, const char **paths, int n);
void free_image_tokens(tern_image_tokens **image_tokens, int n); // NULL is allowed
// Puts them into the prompt where it has places for them, or with `adds`, where it has none, in
// front of it. False after printing why not.
bool place_images(const tern_model *model, tern_image_tokens **image_tokens, int n, bool adds,
                  ids *prompt);
// A question after so many images, by the model's template; system: NULL, or what comes before.
bool tokenize_chat_with_images(const tern_model *model, const char *system, const text *question,
                               int n_images, ids *out);

#endif
