// The loop's thread answers everybody, so nothing that grows with a request is done on it. What is
// known to be short is done at once; everything else is done *away*: on a thread of tasks, which
// has the request to itself meanwhile. What the work writes is kept until the request is back;
// what only the loop's thread may do (jobs, tasks, models) it leaves for then, by request_then.
// A client that goes meanwhile leaves the request behind, which is freed when it is back.
//
// So a body is read away, its handler runs away, and a long answer is written away. The test of
// this counts what is done on the loop's thread, by bytes: server.n_loop_bytes.
#ifndef TERN_SERVE_AWAY_H
#define TERN_SERVE_AWAY_H

#include "apps/serve/request.h"

// Bytes of a request, or of an answer, that the loop's thread handles: a millisecond.
#define SHORT_BYTES (16 << 10)

// Does the work, away if `n_bytes` is more than is short, and after it, on the loop's thread, what
// the work leaves for then, or else `then` (NULL: nothing), unless it has answered.
void request_do(request *req, size_t n_bytes, void (*work)(request *req),
                void (*then)(request *req));
// The same, always away, among these tasks. is_owed: it is the end of what was accepted, and is
// not refused.
void request_do_away(request *req, tasks *among, bool is_owed, void (*work)(request *req),
                     void (*then)(request *req));
// On the loop's thread: at once, or when the request is back.
void request_then(request *req, void (*then)(request *req));
// Hands over a task that is run for the request; it is not the caller's any more. model: it is
// held, and `done` releases it; NULL: none. If too many wait, that is the answer.
void request_run(request *req, tasks *among, task *e, served *model);
// Work that is done away is to end.
bool request_is_cancelled(const request *req);
// Others go first whose turn it is. False: it is to end.
bool request_pause(request *req);

#endif
