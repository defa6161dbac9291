// How a model's family writes reasoning and calls: found from its template and its vocabulary.
#include "input/answer/answer.h"

#include <string.h>

static bool has(tern_str text, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= text.len; i++)
        if (!memcmp(text.ptr + i, part, n)) return true;
    return false;
}

// The first row whose sign the template contains. The order matters: Qwen3.5's function tags are
// inside Qwen3's mark, and Phi's mark begins like Granite's.
static const struct {
    const char *sign;
    tern_answer_style style;
} calls[] = {
    {"<|tool_call>call:", // Gemma 4
     {.body = TERN_CALLS_BRACED,
      .open = "<|tool_call>call:",
      .close = "<tool_call|>",
      .quote = "<|\"|>"}},
    {"<start_function_call>", // FunctionGemma
     {.body = TERN_CALLS_BRACED,
      .open = "<start_function_call>call:",
      .close = "<end_function_call>",
      .quote = "<escape>"}},
    {"<function=", // Qwen3.5, Qwen3-Coder
     {.body = TERN_CALLS_TAGS, .open = "<tool_call>", .close = "</tool_call>"}},
    {"<tool_call>", // Qwen2.5, Qwen3, Hermes, SmolLM3, Granite 4
     {.body = TERN_CALLS_JSON, .open = "<tool_call>", .close = "</tool_call>"}},
    {"<|/tool_call|>", // Phi-4-mini
     {.body = TERN_CALLS_JSON,
      .open = "<|tool_call|>",
      .close = "<|/tool_call|>",
      .is_list = true}},
    {"<|tool_call|>", // Granite 3
     {.body = TERN_CALLS_JSON, .open = "<|tool_call|>", .is_list = true}},
    {"[TOOL_CALLS]", // Mistral: a list, or in newer ones a name and [ARGS]
     {.body = TERN_CALLS_NAMED, .open = "[TOOL_CALLS]"}},
    {"<|tool_call_start|>", // LFM2
     {.body = TERN_CALLS_PYTHON, .open = "<|tool_call_start|>", .close = "<|tool_call_end|>"}},
    {"\"parameters\": ", // Llama 3: the answer is the call
     {.body = TERN_CALLS_JSON, .open = "<|python_tag|>", .is_bare = true}},
};

static const struct {
    const char *sign, *open, *close;
} reasoning[] = {
    {"<|channel>", "<|channel>thought\n", "<channel|>"}, // Gemma 4
    {"</think>", "<think>", "</think>"},
    {"[THINK]", "[THINK]", "[/THINK]"}, // Mistral
};

static bool is_token(const tern_tokenizer *t, const char *text) {
    return t && tern_tokenizer_find(t, (tern_str){text, strlen(text)}) >= 0;
}

tern_answer_style tern_answer_style_of(tern_str source, const tern_tokenizer *tokenizer) {
    tern_answer_style style = {0};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        // LFM2's newer templates do not have its marks; they are in the messages' text.
        if (has(source, calls[i].sign) ||
            (calls[i].style.body == TERN_CALLS_PYTHON && is_token(tokenizer, calls[i].sign))) {
            style = calls[i].style;
            break;
        }
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning; i++)
        if (has(source, reasoning[i].sign)) {
            style.think_open = reasoning[i].open, style.think_close = reasoning[i].close;
            break;
        }
    if (style.body == TERN_CALLS_NAMED) style.is_list = !has(source, "[ARGS]");
    style.takes_tools = has(source, "tools");
    style.renders_calls = has(source, "tool_calls");
    return style;
}
