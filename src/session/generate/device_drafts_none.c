// Replaces device_drafts.c where nobody opens a table of chains, as in WebAssembly: no device
// drafts.
#include "session/session.h"

tern_status tern_device_drafts_open(tern_speculator *sp, const tern_session *s, tern_error *err) {
    return (void)sp, (void)s, (void)err, TERN_OK;
}
void tern_device_drafts_begin(tern_device_drafts *d) { (void)d; }
int32_t tern_device_drafts_choose(tern_speculator *sp) { return (void)sp, 0; }
void tern_device_drafts_ran(tern_speculator *sp, const tern_drafting *q, double seconds) {
    (void)sp, (void)q, (void)seconds;
}
