// Fuzzing of sounds: what libsndfile and soxr make of a file has no more samples than are allowed,
// all of them numbers, and speech is found within it.
#include <math.h>
#include "base/alloc.h"
#include "fuzz/support.h"
#include "media/sound.h"

// libsndfile 1.2 leaks some kilobytes of the decoders' when a file's headers are damaged (an Ogg
// whose Vorbis headers end early, say), which no caller can free.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libsndfile\nleak:libvorbis\nleak:libFLAC\nleak:libopus\nleak:libmpg123\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const tern_sound_desc desc = {.rate = 16000, .seconds_max = 20};
    tern_sound s;
    tern_voice_list speech;
    tern_error err;
    float *voice;
    size_t n_hops;
    if (tern_sound_open_bytes(&s, bytes, n, &desc, &err) != TERN_OK) return 0;
    fuzz_require(s.rate == 16000 && s.n >= 0 && s.n <= 20 * 16000);
    for (int64_t i = 0; i < s.n; i++) fuzz_require(isfinite(s.samples[i]));
    if (tern_voice_by_loudness(s.samples, s.n, &voice, &n_hops, &err) == TERN_OK) {
        if (tern_voice_spans(s.samples, s.n, voice, n_hops, 16000, &speech, &err) == TERN_OK)
            for (size_t i = 0; i < speech.n; i++) {
                const tern_voice_span *p = &speech.spans[i];
                fuzz_require(p->first >= 0 && p->first < p->end && p->end <= s.n);
                fuzz_require(p->end - p->first <= 16000);
            }
        tern_voice_free(&speech);
        tern_free(voice);
    }
    tern_sound_close(&s);
    return 0;
}
