// The loop's thread serves all clients, so it does no work that grows with a request. Work that is
// known to be short is done at once; all other work is done *away*: on a task's thread, which owns
// the request meanwhile. Its output is kept until the request is back; whatever only the loop's
// thread may do (jobs, tasks, models) is deferred to that moment by request_then. If the client
// disconnects meanwhile, the request is freed when it is back.
//
// So a long body is read away, its handler runs away, and a long answer is written away. A test
// checks how many bytes the loop's thread handles: server.n_loop_bytes.
#ifndef TERN_SERVE_AWAY_H
#define TERN_SERVE_AWAY_H

#include "apps/serve/request/request.h"

// Bytes of a request, or of an answer, that the loop's thread handles: a millisecond.
#define SHORT_BYTES (16 << 10)

// Does the work, away if `n_bytes` exceeds SHORT_BYTES. Then, on the loop's thread, calls the
// function that the work gave to request_then, or else `then` (NULL: nothing), unless the request
// has been answered.
void request_do(request *req, size_t n_bytes, void (*work)(request *req),
                void (*then)(request *req));
// The same, always away, among these tasks. is_owed: it completes accepted work and is never
// refused.
void request_do_away(request *req, tasks *among, bool is_owed, void (*work)(request *req),
                     void (*then)(request *req));
// On the loop's thread: at once, or when the request is back.
void request_then(request *req, void (*then)(request *req));
// Submits a task that runs for the request, and takes ownership of it. model: it is held, and
// `done` releases it; NULL: none. If too many tasks wait, answers with that error.
void request_run(request *req, tasks *among, task *e, served *model);
// Whether work that is done away should end.
bool request_is_cancelled(const request *req);
// Lets tasks of other clients go first if it is their turn. False: the work should end.
bool request_pause(request *req);

#endif
