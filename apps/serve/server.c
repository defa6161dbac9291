// What every way to speak to the server needs: models, threads for errands, tools.
#include <time.h>
#include "apps/serve/mcp_desk.h"

tern_status server_open(server *s, const serve_desc *desc, void (*wake)(void *user), void *user,
                        tern_error *err) {
    *s = (server){.desc = desc, .born = (int64_t)time(NULL)};
    TERN_TRY(errands_open(&s->errands, 1, desc->n_queue, wake, user, err));
    TERN_TRY(errands_open(&s->readers, 1, desc->n_queue, wake, user, err));
    TERN_TRY(registry_open(&s->registry, desc, wake, user, err));
    return mcp_desk_open(s, err);
}

void server_close(server *s) {
    errands_close(s->errands);
    errands_close(s->readers);
    mcp_desk_close(s); // has a model that the registry closes
    registry_close(s->registry);
}
