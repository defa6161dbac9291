// Replaces voice_net.c where nobody can name its file, as in WebAssembly: speech is found by
// loudness.
#include "media/sound.h"

tern_status tern_voice_net_open(tern_voice_net **out, const char *path, tern_error *err) {
    (void)out;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: this build has no network for speech", path);
}
void tern_voice_net_close(tern_voice_net *net) { (void)net; }
void tern_voice_net_begin(tern_voice_net *net) { (void)net; }
float tern_voice_net_next(tern_voice_net *net, const float *samples, int64_t n) {
    return (void)net, (void)samples, (void)n, 0;
}
