// Tokens of texts. Long ones are not read on the loop's thread: a megabyte takes a good part of a
// second, and no stream would go on in the meantime.
//
// A handler asks for tokens where it needs them. Of a long text, or one with images, it gets none
// at first, but the error "later", with which it ends as with any other (it may ask for more tokens
// before that).
// Then reply_error hands all these texts to a thread of its own, and when their tokens are there
// the handler is called again, from its beginning: what it asks for it finds, in the order in which
// it asked. So a handler does the same each time, and nothing that lasts, until it has its tokens.
#ifndef TERN_SERVE_LONG_TEXT_H
#define TERN_SERVE_LONG_TEXT_H

#include "apps/serve/generation.h"

// Bytes that a request may have read on the loop's thread: 5 ms.
#define LONG_TEXT (16 << 10)

// A text, or a conversation as the model's template has it.
typedef struct text_wanted {
    tern_str text;  // of a conversation: the request, as tern_chat_format_json takes it
    unsigned flags; // tern_tokenize_flags; not of a conversation
    bool is_chat;
    const images *images; // for the places that it has for them; may be NULL
    tern_strbuf *end;     // of a conversation: the last bytes of what was rendered are appended
} text_wanted;

// Its tokens, to be freed; after them there is room for n_more. NULL: e says why. param: the
// request's field, for errors.
int32_t *read_tokens(request *req, const text_wanted *t, size_t n_more, size_t *n,
                     const char *param, api_error *e);
// The same of a text, on any thread, and now.
int32_t *read_text(const served *s, tern_str text, unsigned flags, size_t n_more, size_t *n,
                   const char *param, api_error *e);
// What the template makes of a request.
void render_chat(const served *s, tern_str conversation, tern_strbuf *out, const char *param,
                 api_error *e);
// A grammar, held: NULL, and e says why. A request asks for one at most.
struct shared_grammar *read_grammar(request *req, const format_wanted *w, api_error *e);
bool is_refused(const api_error *e); // for a reason other than "later"

// Whether e is "later"; then what it waits for has been begun.
bool long_text_begin(request *req, const api_error *e); // for reply_error
void long_text_free(request *req);                      // for request_free

#endif
