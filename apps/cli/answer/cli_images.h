// Images named on a command line.
#ifndef CLI_IMAGES_H
#define CLI_IMAGES_H

#include <stdbool.h>
#include "apps/cli/console/cli.h"
#include "tern_image.h"

// "-" is standard input. False after printing why one cannot be read; the ones before it stay open.
bool read_images(tern_image *out, const char **paths, int n, bool as_stored);
void free_images(tern_image *images, int n);

// The images as the model's tokens, [n], for free_image_tokens; NULL after printing why not.
tern_image_tokens **see_images(tern_model *model, const char **paths, int n);
void free_image_tokens(tern_image_tokens **image_tokens, int n); // NULL is allowed
// Puts them into the prompt at its placeholders, or in front of it if there are none. False after
// printing why not.
bool place_images(const tern_model *model, tern_image_tokens **image_tokens, int n, ids *prompt);

#endif
