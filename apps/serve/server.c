// What every way to speak to the server needs: models, threads for errands, tools.
#include <time.h>
#include "apps/serve/mcp_desk.h"
#include "tern_media.h"

// It is small and stays open.
static tern_status open_codec(server *s, tern_error *err) {
    const tern_model_desc desc = {.n_threads = s->desc->opening.n_threads,
                                  .cpu_features = s->desc->opening.cpu_features};
    tern_codec_info info;
    if (!s->desc->codec) return TERN_OK;
    TERN_TRY(tern_model_open(&s->codec, s->desc->codec, &desc, err));
    tern_model_get_codec_info(s->codec, &info);
    if (info.rate) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: not a codec, which makes sound of codes",
                     s->desc->codec);
}

tern_status server_open(server *s, const serve_desc *desc, void (*wake)(void *user), void *user,
                        tern_error *err) {
    *s = (server){.desc = desc, .born = (int64_t)time(NULL)};
    TERN_TRY(errands_open(&s->errands, 1, desc->n_queue, wake, user, err));
    TERN_TRY(errands_open(&s->readers, 1, desc->n_queue, wake, user, err));
    TERN_TRY(open_codec(s, err));
    TERN_TRY(registry_open(&s->registry, desc, wake, user, err));
    return mcp_desk_open(s, err);
}

void server_close(server *s) {
    errands_close(s->errands);
    errands_close(s->readers);
    mcp_desk_close(s); // has a model that the registry closes
    registry_close(s->registry);
    tern_model_close(s->codec);
}
