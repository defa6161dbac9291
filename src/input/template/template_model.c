// Chooses the chat template of a model, and the data that it is rendered with.
//
// The caller's, else the file's, else a guess from the vocabulary: a model that was trained on
// <|im_start|> has it as one token. The file's template is not used if it is known to be wrong:
// BitNet's first converter wrote another model's template ("Human: ... BITNETAssistant: ") into
// GGUF files.
#include "input/input.h"

#include <ctype.h>
#include <string.h>
#include "base/alloc.h"

static const char chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char llama3[] =
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

static const char bitnet[] =
    "{{ bos_token }}{% for message in messages %}"
    "{{ message['role'] | capitalize }}: {{ message['content'] | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}Assistant: {% endif %}";

// Gemma has no system role: its text goes before the first question.
static const char gemma[] =
    "{{ bos_token }}{% set ns = namespace(system='') %}"
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{% set ns.system = ns.system + message['content'] | trim + '\\n\\n' %}"
    "{% else %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}"
    "{{ ns.system + message['content'] | trim + '<end_of_turn>\\n' }}"
    "{% set ns.system = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

static const char llama2[] =
    "{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{% set ns.system = '<<SYS>>\\n' + message['content'] | trim + '\\n<</SYS>>\\n\\n' %}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% else %}"
    "{{ bos_token + '[INST] ' + ns.system + message['content'] | trim + ' [/INST]' }}"
    "{% set ns.system = '' %}{% endif %}{% endfor %}";

static const char plain[] =
    "{{ bos_token }}{% for message in messages %}"
    "{{ message['role'] | capitalize + ': ' + message['content'] | trim + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}";

static bool contains(tern_str text, const char *part, bool any_case) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= text.len; i++) {
        size_t k = 0;
        while (k < n &&
               (any_case ? tolower((unsigned char)text.ptr[i + k]) : text.ptr[i + k]) == part[k])
            k++;
        if (k == n) return true;
    }
    return false;
}

// Whether the model's name in the file contains this word. The path is not used: users name it.
static bool is_named(const tern_file *file, const char *word) {
    static const char *const gguf[] = {"general.name", "general.architecture", "general.basename"};
    static const char *const hf[] = {"model_type", "_name_or_path"};
    bool is_gguf = file->kind == TERN_FILE_GGUF;
    tern_str name;
    for (size_t i = 0; is_gguf && i < sizeof gguf / sizeof *gguf; i++)
        if (tern_file_meta_str(file, gguf[i], &name) && contains(name, word, true)) return true;
    for (size_t i = 0; i < sizeof hf / sizeof *hf; i++)
        if (contains(tern_json_str(tern_json_path(&file->config, hf[i])), word, true)) return true;
    return false;
}

// "chat_template" of tokenizer_config.json: a text, or a list of named ones.
static tern_str from_config(const tern_json_doc *doc) {
    const tern_json *value = tern_json_path(doc, "chat_template");
    if (!tern_json_is(value, TERN_JSON_ARRAY)) return tern_json_str(value);
    tern_str first = {0};
    for (const tern_json *item = tern_json_first(doc, value); item;
         item = tern_json_next(doc, value, item)) {
        tern_str text = tern_json_str(tern_json_get(doc, item, "template"));
        if (tern_str_is(tern_json_str(tern_json_get(doc, item, "name")), "default")) return text;
        if (!first.ptr) first = text;
    }
    return first;
}

static tern_str from_file(const tern_file *file) {
    tern_str text = file->chat_template;
    if (!text.len) text = from_config(&file->tokenizer_config);
    if (file->kind == TERN_FILE_GGUF && !tern_file_meta_str(file, "tokenizer.chat_template", &text))
        text.len = 0;
    if (contains(text, "BITNETAssistant", false)) text.len = 0;
    return text;
}

static bool has_token(const tern_tokenizer *tokenizer, const char *text) {
    return tern_tokenizer_find(tokenizer, (tern_str){text, strlen(text)}) >= 0;
}

typedef struct guess {
    const char *text, *why;
} guess;

#define GUESS(name, why)                                                                           \
    (guess) { name, "the file has no usable chat template; " #name "'s is guessed by " why }

static guess by_vocabulary(const tern_file *file, const tern_tokenizer *tokenizer) {
    if (has_token(tokenizer, "<|im_start|>")) return GUESS(chatml, "its tokens");
    if (has_token(tokenizer, "<|start_header_id|>"))
        return is_named(file, "bitnet") ? GUESS(bitnet, "its tokens and its name")
                                        : GUESS(llama3, "its tokens");
    if (has_token(tokenizer, "<start_of_turn>")) return GUESS(gemma, "its tokens");
    if (has_token(tokenizer, "[INST]")) return GUESS(llama2, "its tokens");
    bool llama2_name = is_named(file, "llama-2") || is_named(file, "llama2");
    if (llama2_name && is_named(file, "chat")) return GUESS(llama2, "its name");
    return (guess){plain, "the file has no usable chat template, and neither its tokens nor its "
                          "name are of one that is known: a plain one is used"};
}

tern_status tern_template_for_model(tern_template **out, const tern_file *file,
                                    const tern_tokenizer *tokenizer, const char *override,
                                    tern_error *err) {
    tern_str text = override ? (tern_str){override, strlen(override)} : from_file(file);
    guess guessed = {0};
    if (!override && !text.len) {
        guessed = by_vocabulary(file, tokenizer);
        text = (tern_str){guessed.text, strlen(guessed.text)};
    }
    TERN_TRY(tern_template_open(out, text, err));
    tern_template_set_guess(*out, guessed.why);
    tern_template_set_answer_style(*out, tern_answer_style_of(text, tokenizer));
    return TERN_OK;
}
