// Pictures that are named on a command line.
#ifndef CLI_PICTURES_H
#define CLI_PICTURES_H

#include <stdbool.h>
#include "cli.h"
#include "tern_media.h"

// "-" is standard input. False after printing why one cannot be read; those before it are read.
bool read_pictures(tern_picture *out, const char **paths, int n, bool as_stored);
void free_pictures(tern_picture *pictures, int n);

// What the model sees of the pictures, [n] for free_sights; NULL after printing why not.
tern_sight **see_pictures(tern_model *model, const char **paths, int n);
void free_sights(tern_sight **sights, int n); // NULL is allowed
// Puts them into the prompt where it has places for them, or with `adds`, where it has none, in
// front of it. False after printing why not.
bool place_sights(const tern_model *model, tern_sight **sights, int n, bool adds, ids *prompt);
// A question after so many pictures, by the model's template; system: NULL, or what comes before.
bool tokenize_chat_with_pictures(const tern_model *model, const char *system, const text *question,
                                 int n_pictures, ids *out);

#endif
