// Pictures that are named on a command line.
#ifndef CLI_PICTURES_H
#define CLI_PICTURES_H

#include <stdbool.h>
#include "tern_media.h"

// "-" is standard input. False after printing why one cannot be read; those before it are read.
bool read_pictures(tern_picture *out, const char **paths, int n, bool as_stored);
void free_pictures(tern_picture *pictures, int n);

#endif
