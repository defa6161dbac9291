// Replaces the sound decoders if the library is built without them, as for WebAssembly, where the
// browser decodes.
#include "media/sound.h"

tern_status tern_sound_decode(tern_sound *out, const void *bytes, size_t n_bytes, int32_t rate,
                              double seconds_max, tern_error *err) {
    (void)out, (void)bytes, (void)n_bytes, (void)rate, (void)seconds_max;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this build reads no sound files: it was made without libsndfile and libsoxr");
}

tern_status tern_sound_pack(const tern_sound *sound, const char *kind, uint8_t **out, size_t *n,
                            tern_error *err) {
    (void)sound, (void)out, (void)n;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this build writes WAVs alone, no %s: it was made without libsndfile and "
                     "libsoxr",
                     kind);
}
