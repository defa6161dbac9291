// Tokens of texts. Long texts are not tokenized on the loop's thread: a megabyte takes a good part
// of a second, and all streams would stall meanwhile.
//
// A handler that needs tokens of a long text, or of one with images, first gets the error "later"
// and ends as with any other error (it may ask for more tokens before that). Then reply_error has
// all these texts tokenized on another thread, and the handler runs again from the start: it finds
// the tokens in the order in which it asked. So a handler must do the same each time, without
// lasting effects before it has its tokens.
#ifndef TERN_SERVE_LONG_TEXT_H
#define TERN_SERVE_LONG_TEXT_H

#include "apps/serve/request/generation_request.h"

// Bytes of a request that may be tokenized on the loop's thread: 5 ms.
#define LONG_TEXT (16 << 10)

// A text, or a conversation that the model's template renders.
typedef struct text_wanted {
    tern_str text;  // of a conversation: the request, as tern_chat_format_json takes it
    unsigned flags; // tern_tokenize_flags; not of a conversation
    bool is_chat;
    const images *images; // for its image placeholders; may be NULL
    tern_strbuf *end;     // of a conversation: the last bytes of the rendered text are appended
} text_wanted;

// Its tokens, which the caller frees, with room for n_more after them. NULL: e says why. param: the
// request's field, for errors.
int32_t *read_tokens(request *req, const text_wanted *t, size_t n_more, size_t *n,
                     const char *param, api_error *e);
// The same for a text, at once, on any thread.
int32_t *read_text(const served *s, const text_wanted *t, size_t n_more, size_t *n,
                   const char *param, api_error *e);
// Renders a conversation by the model's template.
void render_chat(const served *s, tern_str conversation, tern_strbuf *out, const char *param,
                 api_error *e);
// A grammar, held. NULL: e says why. A request has one at most.
struct shared_grammar *read_grammar(request *req, const format_wanted *w, api_error *e);
bool is_refused(const api_error *e); // for a reason other than "later"

// Whether e is "later"; if so, the work that it waits for has begun.
bool long_text_begin(request *req, const api_error *e); // for reply_error
void long_text_free(request *req);                      // for request_free

#endif
