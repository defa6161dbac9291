// Tokens of a page's input: a text, or the messages of a conversation.
#ifndef TERN_APPS_WEB_TEXT_H
#define TERN_APPS_WEB_TEXT_H

#include "web_args.h"

// Leaves {"ids", "n_dropped"} in web_result.
int32_t web_put_ids(const int32_t *ids, size_t n, size_t n_dropped);
// The caller frees all arrays with tern_free, also after a failed call, if they are not NULL.
tern_status web_ids_of_text(const tern_model *model, tern_str text, bool special, bool bos,
                            tern_ids *out, tern_error *err);
// messages[i] live as long as args.
tern_status web_messages_read(web_args *args, const char *what, const tern_json *array,
                              tern_message **messages, tern_error *err);
tern_status web_ids_of_chat(const tern_model *model, const tern_message *messages, size_t n,
                            const tern_chat_limits *limits, tern_ids *out, tern_error *err);

#endif
