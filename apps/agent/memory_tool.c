// search_memory: the passages of a memory (tern_memory.h) that have to do with a question.
#include <string.h>
#include "apps/agent/tools.h"
#include "base/json.h"

#define HITS_MOST 6

static bool run_search(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    tern_json_doc doc = {0};
    tern_memory_hits *hits = NULL;
    tern_error err = {0};
    tern_strbuf out = {0};
    tern_str query = {0};
    if (tern_json_parse(&doc, call->arguments, strlen(call->arguments), NULL) == TERN_OK)
        query = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "query"));
    const tern_memory_query q = {.text = query.ptr, .n_bytes = query.len, .n_most = HITS_MOST};
    bool ok = query.len && tern_memory_recall(user, &q, &hits, &err) == TERN_OK;
    for (size_t i = 0; ok && i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        tern_strbuf_printf(&out, "%s[%zu] ", i ? "\n\n" : "", i + 1);
        if (*h->source)
            tern_strbuf_printf(&out, "%s:%d", h->source, (int)h->first_line);
        else
            tern_strbuf_printf(&out, "record %lld", (long long)h->record);
        tern_strbuf_printf(&out, "%s%s\n%s", *h->heading ? ", " : "", h->heading, h->text);
    }
    if (ok && hits->n == 0) tern_strbuf_puts(&out, "[nothing in the memory has to do with that]");
    if (ok)
        agent_tool_put(put, put_user, &out);
    else
        agent_tool_fail(put, put_user, "%s", query.len ? err.message : "there is no query");
    tern_memory_hits_free(hits);
    tern_strbuf_free(&out);
    tern_json_free(&doc);
    return ok;
}

tern_status agent_add_memory(agent_tools *t, tern_memory_store *store, tern_error *err) {
    agent_tool *tool;
    TERN_TRY(agent_tools_add(
        t, "search_memory", "Finds passages in the user's notes and documents.",
        "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\",\"description\":"
        "\"A question, or words\"}},\"required\":[\"query\"],\"additionalProperties\":false}",
        &tool, err));
    tool->run = run_search;
    tool->user = store;
    return TERN_OK;
}
