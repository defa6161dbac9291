// A hash of a prompt's prefix that clients and proxies can compute, too: a load balancer sends
// requests with the same prefix to the same server, which has it cached. The hash does not say
// whether it still is. docs/server.md has the rule for other programs.
#include <string.h>
#include "apps/serve/request/generation_request.h"
#include "base/hash.h"

#define PREFIX_BYTES 256 // of a text, whose turns cannot be distinguished

static void take(request *req, const char *text, size_t n) {
    req->prefix_hash = tern_crc32(req->has_prefix_hash ? req->prefix_hash : 0, text, n);
    req->has_prefix_hash = true;
}

// The part that stays the same in all turns of a conversation: the system message and the one after
// it.
void prefix_hash_take_chat(request *req, const messages *m) {
    if (req->has_prefix_hash || m->n == 0) return;
    bool with_system = strcmp(m->list[0].role, "system") == 0 && m->n > 1;
    for (size_t i = 0; i <= (size_t)with_system; i++)
        take(req, m->list[i].content, strlen(m->list[i].content));
}

void prefix_hash_take_text(request *req, tern_str text) {
    if (!req->has_prefix_hash)
        take(req, text.ptr, text.len < PREFIX_BYTES ? text.len : PREFIX_BYTES);
}
