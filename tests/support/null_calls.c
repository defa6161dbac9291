// Every public function with NULL and zero for all arguments: it refuses, or does nothing, and
// never crashes. Built as C and as C++ by header_test.sh, which also compares the names here with
// those in include/, so that a new function is called here or the test fails.
//
// Seen to fail: without a TERN_NEED of tern_generate (a crash, by name), with a function more.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tern_agent.h"
#include "tern_audio.h"
#include "tern_embed.h"
#include "tern_image.h"
#include "tern_memory.h"
#include "tern_tools.h"
#include "tern_train.h"

static const char *called = "";
static int n_bad;
static tern_error err = {0};

static void say(const char *what) {
    ssize_t ignored = write(2, what, strlen(what));
    (void)ignored;
}

static void on_crash(int number) {
    (void)number;
    say("null_calls: crashed in ");
    say(called);
    say("\n");
    _exit(1);
}

static void begin(const char *call) {
    tern_error none = {0};
    called = call;
    err = none;
}

static void refused(tern_status status, bool with_message) {
    bool told = !with_message || (err.status == status && err.message[0]);
    if (status != TERN_OK && told) return;
    fprintf(stderr, "null_calls: %s %s\n", called,
            status == TERN_OK ? "was not refused" : "has no message");
    n_bad++;
}

static void holds(bool expected) {
    if (expected) return;
    fprintf(stderr, "null_calls: %s gave something else\n", called);
    n_bad++;
}

// Refused, with and without an error to fill.
#define FAILS(name, ...)                                                                           \
    (begin(#name "(" #__VA_ARGS__ ")"), refused(name(__VA_ARGS__, &err), true),                    \
     refused(name(__VA_ARGS__, NULL), false))
#define GIVES(value, name, ...)                                                                    \
    (begin(#name "(" #__VA_ARGS__ ")"), holds(name(__VA_ARGS__) == value))
#define RUNS(name, ...) (begin(#name "(" #__VA_ARGS__ ")"), (void)name(__VA_ARGS__))

static bool ignore(void *user, const char *text, size_t n_bytes) {
    (void)user, (void)text, (void)n_bytes;
    return true;
}

static const char *const nobody[] = {NULL};

// ---- Without any object ------------------------------------------------------------------------

static void call_small_ones(void) {
    size_t n = 7;
    tern_model_info info;
    memset(&info, 1, sizeof info);
    begin("tern_version()"), holds(tern_version() != NULL); // takes nothing
    begin("tern_abi_version()"), holds(tern_abi_version() == TERN_ABI_VERSION);
    begin("tern_heap_get()"), holds(tern_heap_get().n_allocs + 1 > 0);
    begin("tern_sampling_default()"), holds(tern_sampling_default().temperature < 0);
    begin("tern_status_name(99)"), holds(tern_status_name((tern_status)99) != NULL);
    begin("tern_datagen_reason_name(99)");
    holds(tern_datagen_reason_name((tern_datagen_reason)99) == NULL);
    begin("tern_data_shape_name(99)"), holds(tern_data_shape_name((tern_data_shape)99) != NULL);
    begin("tern_type_name(99)"), holds(tern_type_name((tern_type)99) != NULL);
    GIVES(TERN_TYPE_AUTO, tern_type_from_name, NULL);
    RUNS(tern_model_close, NULL);
    RUNS(tern_opening_close, NULL);
    RUNS(tern_model_get_info, NULL, NULL);
    tern_metadata metadata;
    memset(&metadata, 1, sizeof metadata);
    GIVES(0u, tern_model_n_metadata, NULL);
    GIVES(false, tern_model_metadata_at, NULL, 0, NULL);
    GIVES(false, tern_model_metadata, NULL, NULL, NULL);
    GIVES(false, tern_model_metadata, NULL, "general.name", &metadata);
    holds(metadata.key == NULL && metadata.n == 0);
    GIVES(false, tern_model_metadata_element, NULL, NULL, 0, NULL);
    RUNS(tern_model_get_info, NULL, &info);
    tern_infill_info infill;
    RUNS(tern_model_get_infill_info, NULL, NULL);
    RUNS(tern_model_get_infill_info, NULL, &infill);
    holds(info.path == NULL && info.n_vocab == 0);
    GIVES(NULL, tern_token_text, NULL, 0, NULL);
    GIVES(NULL, tern_token_text, NULL, 0, &n);
    holds(n == 0);
    GIVES(false, tern_token_is_end, NULL, 0);
    RUNS(tern_answer_close, NULL);
    GIVES(false, tern_answer_with_special, NULL);
    RUNS(tern_chains_close, NULL);
    RUNS(tern_grammar_close, NULL);
    GIVES(0, tern_chains_version, NULL);
    GIVES(NULL, tern_chains_entries, NULL, NULL);
    RUNS(tern_session_close, NULL);
    RUNS(tern_session_reset, NULL);
    GIVES(0, tern_session_n_context, NULL);
    GIVES(TERN_KV_AUTO, tern_session_kv_type, NULL);
    GIVES(NULL, tern_session_lora_scales, NULL, NULL);
    GIVES(0u, tern_session_n_tokens, NULL);
    GIVES(NULL, tern_session_tokens, NULL);
    GIVES(0u, tern_session_bytes, NULL);
    GIVES(false, tern_session_cuts_freely, NULL);
    RUNS(tern_session_cancel, NULL);
    RUNS(tern_cancel_request, NULL);
    RUNS(tern_cancel_reset, NULL);
    GIVES(false, tern_cancel_is_requested, NULL);
    GIVES(NULL, tern_cancel_watch, NULL);
    RUNS(tern_group_close, NULL);
    GIVES(NULL, tern_session_notice, NULL);
    GIVES(NULL, tern_session_generated, NULL, NULL);
    GIVES(NULL, tern_session_token_logprobs, NULL, NULL, NULL);
    GIVES(false, tern_eval_task_known, NULL);
    begin("tern_eval_task_name(0)"), holds(tern_eval_task_name(0) != NULL);
    GIVES(NULL, tern_eval_task_name, (size_t)-1);
    GIVES(false, tern_eval_find_file, NULL, NULL, NULL, NULL);
    GIVES(false, tern_eval_find_file, "piqa", NULL, NULL, NULL);
    GIVES(false, tern_eval_find_file, "piqa", ".", NULL, NULL);
    RUNS(tern_output_close, NULL);
}

static void call_with_nothing(void) {
    tern_array array = {0};
    tern_chains *chains = NULL;
    tern_lora *none = NULL;
    tern_model_desc adapters = {0};
    tern_convert_desc merge = {0};
    adapters.loras = none, adapters.n_loras = 1;
    merge.loras = none, merge.n_loras = 1;
    const tern_chain chain = {NULL, 3, 0, NULL};
    tern_model *m = NULL;
    tern_session *fork = NULL;
    tern_group *group = NULL;
    tern_opening *opening = NULL;
    tern_answer *answer = NULL;
    tern_grammar *grammar = NULL;
    tern_grammar_desc any;
    uint64_t bits[1];
    memset(&any, 0, sizeof any);
    bool done;
    FAILS(tern_group_open, NULL, NULL, NULL);
    FAILS(tern_group_open, &group, NULL, NULL);
    FAILS(tern_group_add, NULL, NULL, NULL, 0, NULL);
    FAILS(tern_group_step, NULL, NULL);
    RUNS(tern_group_get_info, NULL, NULL);
    FAILS(tern_group_begin, NULL);
    FAILS(tern_group_poll, NULL, NULL, NULL);
    FAILS(tern_group_poll, NULL, &done, NULL);
    FAILS(tern_session_fork, NULL, NULL, 0);
    FAILS(tern_session_fork, &fork, NULL, 0);
    FAILS(tern_session_swap_out, NULL);
    FAILS(tern_model_open, NULL, NULL, NULL);
    FAILS(tern_model_open, &m, NULL, NULL);
    FAILS(tern_model_open, &m, "", NULL);
    FAILS(tern_model_open, &m, "none.gguf", &adapters);
    FAILS(tern_model_open_begin, NULL, NULL, NULL);
    FAILS(tern_model_open_begin, &opening, NULL, NULL);
    FAILS(tern_model_open_begin, &opening, "none.gguf", &adapters);
    FAILS(tern_model_open_poll, NULL, NULL, NULL);
    FAILS(tern_model_open_poll, NULL, &done, NULL);
    FAILS(tern_model_open_poll, NULL, &done, &m);
    FAILS(tern_tokenize, NULL, NULL, 0, 0, NULL);
    FAILS(tern_detokenize, NULL, NULL, false, NULL, NULL);
    FAILS(tern_token_piece, NULL, 5, NULL, NULL);
    FAILS(tern_chat_format, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_chat_format_json, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_chat_format_json, NULL, "{}", 2, ignore, NULL);
    FAILS(tern_grammar_open, NULL, NULL, NULL);
    FAILS(tern_grammar_open, &grammar, NULL, &any);
    FAILS(tern_grammar_check, NULL, "text", 4, NULL, NULL);
    FAILS(tern_grammar_mask, NULL, "text", 4, bits, 1);
    FAILS(tern_answer_open, NULL, NULL, NULL, NULL);
    FAILS(tern_answer_open, &answer, NULL, NULL, NULL);
    FAILS(tern_answer_put, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_answer_end, NULL, NULL, NULL);
    FAILS(tern_chat_tokens, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_chat_tokens_json, NULL, NULL, NULL, NULL);
    FAILS(tern_chat_answer, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_chains_open, NULL, NULL);
    FAILS(tern_chains_open, &chains, NULL);
    FAILS(tern_chains_create, NULL, NULL, 0);
    FAILS(tern_chains_create, &chains, NULL, 1);
    FAILS(tern_chains_create, &chains, &chain, 1);
    FAILS(tern_chains_save, NULL, NULL);
    FAILS(tern_session_open, NULL, NULL, NULL);
    FAILS(tern_session_profile, NULL, NULL, NULL);
    FAILS(tern_session_sync, NULL, NULL, 0, NULL);
    FAILS(tern_session_logits, NULL, NULL, 0, NULL);
    FAILS(tern_session_logprobs, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_rank_logprobs, NULL, 0, 0, NULL, 0);
    FAILS(tern_session_save, NULL, NULL);
    FAILS(tern_session_load, NULL, NULL);
    FAILS(tern_session_save_bytes, NULL, NULL, NULL);
    FAILS(tern_session_save_bytes, NULL, ignore, NULL);
    FAILS(tern_session_load_bytes, NULL, NULL, 0);
    FAILS(tern_session_truncate, NULL, 0);
    FAILS(tern_session_last_logits, NULL, NULL);
    FAILS(tern_session_peek, NULL, NULL, NULL);
    FAILS(tern_session_digest, NULL, NULL);
    FAILS(tern_generate_ids, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_generate, NULL, NULL, NULL, NULL);
    FAILS(tern_inspect, NULL, NULL, NULL, NULL);
    FAILS(tern_inspect, "none.gguf", NULL, NULL, NULL);
    FAILS(tern_graph_report, NULL, NULL, TERN_FORMAT_TEXT, NULL, NULL);
    FAILS(tern_compute, NULL, NULL);
    FAILS(tern_embed, NULL, NULL, 0, NULL, NULL);
    tern_embedding *embedding = NULL;
    FAILS(tern_embed_begin, NULL, NULL, NULL, 0, NULL);
    FAILS(tern_embed_begin, &embedding, NULL, NULL, 0, NULL);
    FAILS(tern_embed_poll, NULL, NULL, NULL);
    RUNS(tern_embed_close, NULL);
    FAILS(tern_rerank, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_json_lines, NULL, 0, NULL, NULL, NULL);
    begin("tern_similarity(NULL, NULL, 3)"), holds(tern_similarity(NULL, NULL, 3) == 0);
    RUNS(tern_embedding_get_info, NULL, NULL);
    tern_image image = {0};
    FAILS(tern_image_open, NULL, NULL, NULL);
    FAILS(tern_image_open, &image, NULL, NULL);
    FAILS(tern_image_open, &image, "none.jpg", NULL);
    FAILS(tern_image_open_bytes, NULL, NULL, 0, NULL);
    FAILS(tern_image_open_bytes, &image, NULL, 0, NULL);
    FAILS(tern_image_create, NULL, 1, 1);
    FAILS(tern_image_create, &image, 0, 1);
    FAILS(tern_image_resize, NULL, NULL, 1, 1, TERN_IMAGE_BICUBIC);
    FAILS(tern_image_resize, &image, NULL, 1, 1, TERN_IMAGE_BICUBIC);
    FAILS(tern_image_resize, &image, &image, 1, 1, TERN_IMAGE_BICUBIC);
    RUNS(tern_image_close, NULL);
    RUNS(tern_image_close, &image);
    FAILS(tern_classify, NULL, NULL, 0, NULL, NULL);
    tern_sound sound = {0};
    tern_transcription transcript = {0};
    FAILS(tern_sound_open, NULL, NULL, NULL);
    FAILS(tern_sound_open, &sound, NULL, NULL);
    FAILS(tern_sound_open, &sound, "none.wav", NULL);
    FAILS(tern_sound_open_bytes, NULL, NULL, 0, NULL);
    FAILS(tern_sound_open_bytes, &sound, NULL, 0, NULL);
    FAILS(tern_sound_create, NULL, 16000, 1);
    FAILS(tern_sound_create, &sound, 0, 1);
    FAILS(tern_sound_write, NULL, NULL);
    FAILS(tern_sound_write, &sound, NULL);
    FAILS(tern_sound_encode, NULL, "wav", NULL, NULL);
    FAILS(tern_sound_encode, &sound, NULL, NULL, NULL);
    FAILS(tern_sound_encode, &sound, "wav", NULL, NULL);
    RUNS(tern_sound_pcm16, NULL, 1, NULL);
    RUNS(tern_sound_wav_header, 16000, 1, NULL);
    RUNS(tern_sound_close, NULL);
    RUNS(tern_sound_close, &sound);
    FAILS(tern_transcribe, NULL, NULL, NULL, NULL);
    FAILS(tern_transcribe, NULL, &sound, NULL, &transcript);
    RUNS(tern_transcription_free, NULL);
    RUNS(tern_transcription_free, &transcript);
    tern_transcriber *hear = NULL;
    FAILS(tern_transcriber_open, NULL, NULL, NULL);
    FAILS(tern_transcriber_open, &hear, NULL, NULL);
    FAILS(tern_transcriber_open_sound, NULL, NULL, NULL, NULL);
    FAILS(tern_transcriber_open_sound, &hear, NULL, NULL, NULL);
    FAILS(tern_transcriber_open_sound, &hear, NULL, &sound, NULL);
    FAILS(tern_transcriber_poll, NULL, NULL, NULL);
    FAILS(tern_transcriber_poll, NULL, &transcript, &done);
    FAILS(tern_transcriber_feed, NULL, NULL, 0);
    FAILS(tern_transcriber_end, NULL);
    RUNS(tern_transcriber_close, NULL);
    tern_media_info media_info;
    tern_codec_stream *codec_stream = NULL;
    tern_speak_params speak = {0};
    tern_speak_stats spoken;
    speak.n_ids = 1;
    FAILS(tern_speak, NULL, NULL, NULL, NULL, NULL);
    FAILS(tern_speak, NULL, NULL, "text", NULL, NULL);
    FAILS(tern_speak, NULL, NULL, NULL, &speak, NULL);
    tern_speech *saying = NULL;
    const float *samples = NULL;
    size_t n_samples = 0;
    FAILS(tern_speech_open, NULL, NULL, NULL, NULL, NULL);
    FAILS(tern_speech_open, &saying, NULL, NULL, "text", NULL);
    FAILS(tern_speech_open, &saying, NULL, NULL, NULL, &speak);
    RUNS(tern_speech_get_stats, NULL, NULL);
    RUNS(tern_speech_get_stats, NULL, &spoken);
    FAILS(tern_speech_poll, NULL, NULL, NULL, NULL);
    FAILS(tern_speech_poll, NULL, &samples, &n_samples, &done);
    RUNS(tern_speech_close, NULL);
    RUNS(tern_model_get_media_info, NULL, NULL);
    RUNS(tern_model_get_media_info, NULL, &media_info);
    FAILS(tern_codec_open, NULL, NULL);
    FAILS(tern_codec_open, &codec_stream, NULL);
    FAILS(tern_codec_decode, NULL, NULL, 0, NULL, NULL);
    RUNS(tern_codec_close, NULL);
    FAILS(tern_embed_images, NULL, NULL, 0, NULL);
    tern_image_tokens *tokens = NULL;
    size_t n_image_ids = 1;
    FAILS(tern_image_tokens_open, NULL, NULL, NULL, 0, NULL);
    FAILS(tern_image_tokens_open, &tokens, NULL, &image, 1, NULL);
    tern_image_encoder *encoder = NULL;
    FAILS(tern_image_encoder_open, NULL, NULL, NULL, 0, NULL);
    FAILS(tern_image_encoder_open, &encoder, NULL, &image, 1, NULL);
    FAILS(tern_image_encoder_poll, NULL, &tokens);
    FAILS(tern_image_encoder_poll, NULL, NULL);
    RUNS(tern_image_encoder_close, NULL);
    RUNS(tern_image_tokens_close, NULL);
    RUNS(tern_image_tokens_ids, NULL, &n_image_ids);
    FAILS(tern_image_tokens_place, NULL, NULL, NULL, 0, NULL);
    begin("tern_model_label(NULL, 0)"), holds(tern_model_label(NULL, 0) == NULL);
    FAILS(tern_compute_report, NULL, NULL, TERN_FORMAT_TEXT, NULL, NULL);
    FAILS(tern_array_read, NULL, NULL);
    FAILS(tern_array_read, NULL, "none.npy");
    FAILS(tern_array_read, &array, NULL);
    FAILS(tern_array_read, &array, "none.npy");
    FAILS(tern_array_write, NULL, NULL);
    RUNS(tern_array_free, NULL);
    RUNS(tern_array_free, &array);
    FAILS(tern_convert, NULL, NULL, NULL);
    FAILS(tern_convert, NULL, "none.gguf", NULL);
    FAILS(tern_convert, "none.gguf", NULL, NULL);
    FAILS(tern_convert, "none.gguf", "other.gguf", &merge);
    FAILS(tern_eval_perplexity, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_eval_compare, NULL, NULL, (tern_bytes){0}, NULL, NULL);
    FAILS(tern_eval_run, NULL, NULL, NULL);
    FAILS(tern_eval_significance, NULL, NULL, TERN_TABLE_MARKDOWN, NULL, NULL);
    FAILS(tern_eval_table, NULL, 0, TERN_TABLE_MARKDOWN, NULL, NULL);
    FAILS(tern_eval_table, NULL, 2, TERN_TABLE_MARKDOWN, NULL, NULL);
    FAILS(tern_eval_paper, NULL, TERN_FORMAT_TEXT, NULL, NULL);
    FAILS(tern_imatrix, NULL, "none.gguf", NULL, NULL);
    FAILS(tern_datagen, NULL, NULL, NULL);
    FAILS(tern_mine, NULL, NULL, NULL, NULL);
    FAILS(tern_diagnose, NULL, NULL, NULL, NULL);
    FAILS(tern_machine_measure, 0, NULL);
    FAILS(tern_machine_report, NULL, NULL);
}

static void call_files(const char *path) {
    tern_output *out = NULL;
    tern_array array = {0};
    array.n_dims = 1;
    array.dims[0] = 3;
    FAILS(tern_file_write, NULL, NULL, 0);
    FAILS(tern_file_write, path, NULL, 4);
    FAILS(tern_array_write, &array, path);
    FAILS(tern_output_open, NULL, NULL);
    FAILS(tern_output_open, &out, NULL);
    FAILS(tern_output_write, NULL, NULL, 0);
    FAILS(tern_output_finish, NULL);
    if (tern_output_open(&out, path, &err) == TERN_OK) FAILS(tern_output_write, out, NULL, 4);
    tern_output_close(out);
}

static void call_chats(void) {
    tern_chat *chat = NULL;
    FAILS(tern_chat_open, NULL);
    RUNS(tern_chat_close, NULL);
    FAILS(tern_chat_add, NULL, NULL, NULL);
    FAILS(tern_chat_set_system, NULL, NULL);
    RUNS(tern_chat_cut, NULL, 0);
    GIVES(NULL, tern_chat_messages, NULL, NULL);
    FAILS(tern_chat_add_image, NULL, NULL);
    FAILS(tern_chat_save, NULL, NULL);
    FAILS(tern_chat_load, NULL, NULL);
    if (tern_chat_open(&chat, &err) != TERN_OK) return;
    FAILS(tern_chat_add, chat, NULL, "text");
    FAILS(tern_chat_add, chat, "user", NULL);
    GIVES(TERN_OK, tern_chat_set_system, chat, NULL, NULL);
    RUNS(tern_chat_messages, chat, NULL);
    FAILS(tern_chat_add_image, chat, NULL);
    RUNS(tern_chat_cut, chat, 0);
    FAILS(tern_chat_save, chat, NULL);
    FAILS(tern_chat_load, chat, NULL);
    tern_chat_close(chat);
}

static void call_training(void) {
    tern_data_tokenizer_desc learn = {0}, no_specials = {0};
    tern_data_build_desc build = {0}, no_paths = {0};
    tern_train_desc train = {0};
    learn.source.paths = nobody, learn.source.n_paths = 1;
    no_specials.n_specials = 2;
    no_paths.tokenizer = "none", no_paths.source.n_paths = 2;
    FAILS(tern_data_tokenizer, NULL, NULL, NULL);
    FAILS(tern_data_tokenizer, "/none/out.json", NULL, NULL);
    FAILS(tern_data_tokenizer, "/none/out.json", &learn, NULL);
    FAILS(tern_data_tokenizer, "/none/out.json", &no_specials, NULL);
    FAILS(tern_data_build, NULL, NULL, NULL);
    FAILS(tern_data_build, "/none/out", NULL, NULL);
    FAILS(tern_data_build, "/none/out", &build, NULL);
    FAILS(tern_data_build, "/none/out", &no_paths, NULL);
    FAILS(tern_data_inspect, NULL, NULL, NULL, NULL);
    FAILS(tern_train, NULL);
    FAILS(tern_train, &train);
    train.data = "none";
    FAILS(tern_train, &train);
    FAILS(tern_train_plan, NULL);
    FAILS(tern_train_plan, &train);
    tern_train_rates rates;
    FAILS(tern_train_find_rate, NULL, &rates);
    FAILS(tern_train_find_rate, &train, NULL);
    FAILS(tern_train_find_rate, &train, &rates);
    tern_ternarize_desc ternarize = {0};
    FAILS(tern_ternarize, NULL);
    FAILS(tern_ternarize_plan, NULL);
    FAILS(tern_ternarize, &ternarize);
    ternarize.model = ternarize.out = "/none/model.gguf";
    FAILS(tern_ternarize, &ternarize);
    ternarize.source.paths = nobody;
    ternarize.source.n_paths = 1;
    FAILS(tern_ternarize_plan, &ternarize);
    ternarize.compared = nobody;
    ternarize.n_compared = 1;
    FAILS(tern_ternarize, &ternarize);
    begin("tern_ternarize_stage_name(99)");
    holds(tern_ternarize_stage_name((tern_ternarize_stage)99) != NULL);
    FAILS(tern_train_plot, NULL, 0, NULL);
    FAILS(tern_train_plot, NULL, 1, "/none/out.svg");
    FAILS(tern_train_plot, nobody, 1, "/none/out.svg");
}

// ---- With a model and a session, and nothing else ----------------------------------------------

static void call_with_model(tern_model *m) {
    tern_array array = {0};
    tern_compute_desc compute = {0};
    int32_t ids[4] = {0};
    tern_ids none = {NULL, 0, 7}, four = {ids, 4, 4}, nowhere = {NULL, 4, 4};
    tern_imatrix_desc no_text = {0};
    tern_chains *chains = NULL;
    const tern_message message = {0};
    tern_mine_desc mine = {0}, no_shards = {0};
    const tern_datagen_desc no_prompt = {.n_records = 1}, no_records = {.prompt = "x"};
    no_shards.shards = nobody, no_shards.n_shards = 1;
    no_text.n_bytes = 4;
    RUNS(tern_model_get_info, m, NULL);
    RUNS(tern_model_get_infill_info, m, NULL);
    GIVES(false, tern_model_metadata_at, m, 0, NULL);
    GIVES(false, tern_model_metadata, m, NULL, NULL);
    GIVES(false, tern_model_metadata_element, m, "general.name", 0, NULL);
    RUNS(tern_token_text, m, 5, NULL);
    GIVES(TERN_OK, tern_tokenize, m, NULL, 0, 0, &none, NULL);
    holds(none.n == 0);
    FAILS(tern_tokenize, m, NULL, 3, 0, &four);
    FAILS(tern_tokenize, m, "text", 4, 0, &nowhere);
    FAILS(tern_tokenize, m, "text", 4, 0, NULL);
    FAILS(tern_detokenize, m, &four, false, NULL, NULL);
    FAILS(tern_detokenize, m, &nowhere, false, ignore, NULL);
    FAILS(tern_detokenize, m, NULL, false, ignore, NULL);
    FAILS(tern_token_piece, m, 5, NULL, NULL);
    FAILS(tern_chat_format, m, NULL, 2, ignore, NULL);
    FAILS(tern_chat_format, m, &message, 1, ignore, NULL);
    FAILS(tern_chat_tokens, m, NULL, 2, NULL, &four);
    FAILS(tern_chat_tokens, m, &message, 1, NULL, &four);
    FAILS(tern_chat_tokens, m, &message, 1, NULL, &nowhere);
    FAILS(tern_chat_tokens, m, NULL, 0, NULL, NULL);
    tern_chat_request request;
    memset(&request, 0, sizeof request);
    FAILS(tern_chat_tokens_json, m, NULL, NULL, &four);
    FAILS(tern_chat_tokens_json, m, &request, NULL, &four);
    request.n_images = 1;
    FAILS(tern_chat_tokens_json, m, &request, NULL, &four);
    FAILS(tern_graph_report, m, NULL, TERN_FORMAT_TEXT, NULL, NULL);
    FAILS(tern_compute, m, NULL);
    FAILS(tern_compute, m, &compute);
    compute.n_outputs = 1;
    FAILS(tern_compute, m, &compute);
    compute.outputs = &array;
    FAILS(tern_compute, m, &compute);
    compute.n_inputs = 1;
    FAILS(tern_compute, m, &compute);
    compute.inputs = &array;
    FAILS(tern_compute, m, &compute);
    array.name = "ids";
    FAILS(tern_compute, m, &compute);
    FAILS(tern_compute_report, m, NULL, TERN_FORMAT_TEXT, NULL, NULL);
    FAILS(tern_compute_report, m, "none", TERN_FORMAT_TEXT, ignore, NULL);
    FAILS(tern_chat_format_json, m, NULL, 0, ignore, NULL);
    FAILS(tern_chat_format_json, m, "{}", 2, NULL, NULL);
    FAILS(tern_chat_format_json, m, "{}", 2, ignore, NULL);
    FAILS(tern_answer_open, NULL, m, NULL, NULL);
    tern_grammar *grammar = NULL;
    tern_grammar_desc any;
    memset(&any, 0, sizeof any);
    FAILS(tern_grammar_open, NULL, m, &any);
    FAILS(tern_grammar_open, &grammar, m, NULL);
    FAILS(tern_grammar_open, &grammar, m, &any);
    any.kind = TERN_GRAMMAR_CHOICES, any.n_choices = 1, any.choices = nobody;
    FAILS(tern_grammar_open, &grammar, m, &any);
    any.kind = TERN_GRAMMAR_JSON, any.choices = NULL, any.n_choices = 0;
    GIVES(TERN_OK, tern_grammar_open, &grammar, m, &any, NULL);
    FAILS(tern_grammar_check, grammar, NULL, 4, NULL, NULL);
    GIVES(TERN_OK, tern_grammar_check, grammar, NULL, 0, NULL, NULL, NULL);
    FAILS(tern_grammar_mask, grammar, NULL, 4, NULL, 0);
    FAILS(tern_grammar_mask, grammar, NULL, 0, NULL, 0);
    tern_grammar_close(grammar);
    FAILS(tern_session_open, NULL, m, NULL);
    FAILS(tern_imatrix, m, "none.gguf", NULL, NULL);
    FAILS(tern_imatrix, m, "none.gguf", &no_text, NULL);
    FAILS(tern_imatrix, m, NULL, &no_text, NULL);
    FAILS(tern_datagen, m, NULL, NULL);
    FAILS(tern_datagen, m, &no_prompt, NULL);
    FAILS(tern_datagen, m, &no_records, NULL);
    FAILS(tern_mine, NULL, m, NULL, NULL);
    FAILS(tern_mine, &chains, m, NULL, NULL);
    FAILS(tern_mine, &chains, m, &mine, NULL);
    FAILS(tern_mine, &chains, m, &no_shards, NULL);
}

static void call_with_session(tern_session *s) {
    size_t n = 7;
    const int32_t ids[] = {5, 6};
    tern_target_score scores[2];
    const tern_profile_row *rows;
    const tern_message message = {0};
    tern_perplexity ppl;
    tern_eval_comparison comparison;
    tern_eval_result result;
    tern_eval_desc eval = {0};
    tern_generate_params no_stops = {0}, null_stop = {0}, two = {0};
    no_stops.n_stops = null_stop.n_stops = 1;
    null_stop.stops = nobody;
    two.max_tokens = 2;
    GIVES(TERN_OK, tern_session_sync, s, NULL, 0, NULL, NULL);
    FAILS(tern_session_sync, s, NULL, 2, NULL);
    FAILS(tern_session_logits, s, NULL, 2, NULL);
    FAILS(tern_session_logprobs, s, NULL, 2, ids, scores);
    FAILS(tern_session_logprobs, s, ids, 2, NULL, scores);
    FAILS(tern_session_logprobs, s, ids, 2, ids, NULL);
    FAILS(tern_session_profile, s, NULL, &n);
    FAILS(tern_session_profile, s, &rows, NULL);
    FAILS(tern_session_profile, s, &rows, &n); // opened without
    FAILS(tern_session_save, s, NULL);
    FAILS(tern_session_load, s, NULL);
    FAILS(tern_session_save_bytes, s, NULL, NULL);
    FAILS(tern_session_load_bytes, s, NULL, 8);
    FAILS(tern_session_last_logits, s, NULL);
    FAILS(tern_session_peek, s, NULL, NULL);
    FAILS(tern_session_digest, s, NULL);
    FAILS(tern_generate_ids, s, NULL, 0, NULL, NULL);
    FAILS(tern_generate_ids, s, NULL, 2, NULL, NULL);
    FAILS(tern_generate_ids, s, ids, 2, &no_stops, NULL);
    FAILS(tern_generate, s, "text", &null_stop, NULL);
    FAILS(tern_generate, s, NULL, NULL, NULL);
    GIVES(TERN_OK, tern_generate, s, "text", &two, NULL, NULL);
    begin("tern_session_generated(s, NULL)"), holds(tern_session_generated(s, NULL) != NULL);
    RUNS(tern_session_token_logprobs, s, NULL, NULL);
    FAILS(tern_chat_answer, s, NULL, 2, NULL, NULL);
    FAILS(tern_chat_answer, s, &message, 1, NULL, NULL);
    FAILS(tern_eval_perplexity, s, NULL, 0, NULL, &ppl);
    FAILS(tern_eval_perplexity, s, "text", 4, NULL, NULL);
    FAILS(tern_eval_compare, s, NULL, (tern_bytes){"text", 4}, NULL, &comparison);
    FAILS(tern_eval_compare, s, s, (tern_bytes){NULL, 4}, NULL, &comparison);
    FAILS(tern_eval_run, s, NULL, &result);
    FAILS(tern_eval_run, s, &eval, &result);
}

static bool ignore_record(void *user, const tern_memory_record *record) {
    (void)user, (void)record;
    return true;
}

static void call_memory(void) {
    tern_memory_store *store = NULL;
    tern_memory_info info;
    tern_memory_hits *hits;
    const tern_memory_item item = {0};
    FAILS(tern_memory_open, NULL, "unwritten", NULL);
    FAILS(tern_memory_open, &store, NULL, NULL);
    RUNS(tern_memory_close, NULL);
    FAILS(tern_memory_get_info, NULL, &info);
    FAILS(tern_memory_get_info, NULL, NULL);
    FAILS(tern_memory_add, NULL, &item, NULL, NULL);
    FAILS(tern_memory_add, NULL, NULL, NULL, NULL);
    FAILS(tern_memory_recall, NULL, NULL, &hits);
    FAILS(tern_memory_recall, NULL, NULL, NULL);
    RUNS(tern_memory_hits_free, NULL);
    FAILS(tern_memory_list, NULL, NULL, 0, ignore_record, NULL);
    FAILS(tern_memory_list, NULL, NULL, 0, NULL, NULL);
    FAILS(tern_memory_show, NULL, 1, ignore_record, NULL);
    FAILS(tern_memory_forget, NULL, 1);
    FAILS(tern_memory_forget_where, NULL, NULL, 0, NULL);
    FAILS(tern_memory_compact, NULL);
    FAILS(tern_memory_export, NULL, NULL, 0, ignore, NULL);
    FAILS(tern_memory_import, NULL, NULL, 0, NULL, NULL);
    begin("tern_memory_rule(0, NULL)"), holds(tern_memory_rule(0, NULL) != NULL);
    GIVES(NULL, tern_memory_rule, (size_t)-1, NULL);
}

static void call_agents(void) {
    tern_agent *agent = NULL;
    tern_agent_desc desc = {0};
    tern_agent_result result;
    desc.n_tools = 1;
    FAILS(tern_agent_open, NULL, NULL, NULL);
    FAILS(tern_agent_open, &agent, NULL, NULL);
    FAILS(tern_agent_open, &agent, NULL, &desc);
    RUNS(tern_agent_close, NULL);
    FAILS(tern_agent_run, NULL, "task", &result);
    FAILS(tern_agent_run, NULL, NULL, NULL);
    FAILS(tern_agent_messages, NULL, ignore, NULL);
    FAILS(tern_agent_messages, NULL, NULL, NULL);
    begin("tern_agent_end_name(99)"), holds(tern_agent_end_name((tern_agent_end)99)[0] == 0);
}

int main(int argc, char **argv) {
    tern_model *m = NULL;
    tern_session *s = NULL;
    signal(SIGSEGV, on_crash);
    signal(SIGFPE, on_crash);
    signal(SIGABRT, on_crash);
    call_small_ones();
    call_with_nothing();
    call_chats();
    call_training();
    call_memory();
    call_agents();
    if (argc > 1 && (tern_model_open(&m, argv[1], NULL, &err) != TERN_OK ||
                     tern_session_open(&s, m, NULL, &err) != TERN_OK)) {
        fprintf(stderr, "null_calls: %s\n", err.message);
        return 1;
    }
    if (argc > 2) call_files(argv[2]);
    if (m) call_with_model(m);
    if (s) call_with_session(s);
    tern_session_close(s);
    tern_model_close(m);
    return n_bad > 0;
}
