// Decoders call this every few rows, so that reading a large image can be stopped.
#ifndef TERN_MEDIA_IMAGE_PAUSE_H
#define TERN_MEDIA_IMAGE_PAUSE_H

#include <stdint.h>
#include "base/status.h"

// Fails with TERN_ERR_CANCELLED if this thread is to stop.
tern_status tern_image_pause(tern_error *err);
// How often this thread called it, for tests.
uint64_t tern_image_n_pauses(void);

#endif
