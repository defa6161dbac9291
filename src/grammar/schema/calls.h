// Private to the grammar folder: tool calls in the format of a model's family, with arguments that
// each tool's schema allows.
#ifndef TERN_GRAMMAR_CALLS_H
#define TERN_GRAMMAR_CALLS_H

#include "grammar/grammar.h"
#include "grammar/rules/rules.h"

// tools: a JSON list of functions, each wrapped as OpenAI has it or not. Fails, with the function's
// name, if a schema is not supported, or if it is not a list of properties and the family has no
// other way to write it.
tern_status tern_calls_expr(tern_rules *r, tern_str tools, const tern_call_form *form,
                            tern_expr *root, tern_error *err);

#endif
