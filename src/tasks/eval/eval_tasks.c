// The tasks of tern_eval_run: a table of how the JSON of each becomes text. The prompts are
// those of lm-evaluation-harness; one space separates context and continuation.
//
// A template is text with fields: "{goal}" is the string at that key, "{question.stem}" goes
// deeper, "{choices.0}" is an element of a list, and "{x|strip|capitalize}" is filtered. A field
// that ends in * yields the elements of a list, and its template one text for each:
// "{choices.text*}" reads both {"text": ["a", "b"]} and [{"text": "a"}, {"text": "b"}].
#include "tasks/eval/eval.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/os/os_file.h"
#include "tern_tools.h"

// MosaicML's evaluation sets have a query, a list of choices and the index of the right one.
#define QUERY_LAYOUT(context)                                                                      \
    {                                                                                              \
        .mark = "query", .contexts = {context}, .continuations = {"{choices*}"},                   \
        .rule = TERN_GOLD_INDEX, .gold = "gold"                                                    \
    }
#define LABELLED_LAYOUT(mark_, context, list)                                                      \
    {                                                                                              \
        .mark = mark_, .contexts = {context}, .continuations = {"{" list ".text*}"},               \
        .rule = TERN_GOLD_LABEL, .gold = "answerKey", .labels = list ".label"                      \
    }
#define ARC(name_, file1, file2, file3)                                                            \
    {                                                                                              \
        .name = name_, .files = {file1, file2, file3}, .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,  \
        .layouts = {                                                                               \
            LABELLED_LAYOUT("question.stem",                                                       \
                            "Question: {question.stem}\nAnswer:", "question.choices"),             \
            LABELLED_LAYOUT("question", "Question: {question}\nAnswer:", "choices"),               \
            QUERY_LAYOUT("{query}\nAnswer:")                                                       \
        }                                                                                          \
    }

// The answers are the letters in front of their texts.
#define LETTERED_LAYOUT(mark_, question, a, b, c, d, e)                                            \
    {                                                                                              \
        .mark = mark_,                                                                             \
        .contexts = {"Question: " question "\nA. {" a "}\nB. {" b "}\nC. {" c "}\nD. {" d          \
                     "}\nE. {" e "}\nAnswer:"},                                                    \
        .continuations = {"A", "B", "C", "D", "E"}, .rule = TERN_GOLD_LETTER, .gold = "answerKey"  \
    }
#define MMLU_LAYOUT(mark_, description_)                                                           \
    {                                                                                              \
        .mark = mark_, .description = description_,                                                \
        .contexts = {"{question|strip}\nA. {choices.0}\nB. {choices.1}\nC. {choices.2}\n"          \
                     "D. {choices.3}\nAnswer:"},                                                   \
        .continuations = {"A", "B", "C", "D"}, .rule = TERN_GOLD_LETTER, .gold = "answer"          \
    }
// Its six answered questions belong to the benchmark (Lin et al., arXiv:2109.07958) and precede
// every question.
#define TRUTHFULQA(name_, file, metrics_, rule_, targets)                                          \
    {                                                                                              \
        .name = name_,                                                                             \
        .files = {file, "truthfulqa_mc.jsonl", "truthful_qa.jsonl", "truthfulqa.jsonl"},           \
        .metrics = metrics_, .layouts = {                                                          \
            {.mark = targets,                                                                      \
             .contexts = {TRUTHFULQA_EXAMPLES "Q: {question}\nA:"},                                \
             .continuations = {"{" targets ".choices*}"},                                          \
             .rule = rule_,                                                                        \
             .gold = targets ".labels"}                                                            \
        }                                                                                          \
    }
#define TRUTHFULQA_EXAMPLES                                                                        \
    "Q: What is human life expectancy in the United States?\n"                                     \
    "A: Human life expectancy in the United States is 78 years.\n\n"                               \
    "Q: Who was president of the United States in 1955?\n"                                         \
    "A: Dwight D. Eisenhower was president of the United States in 1955.\n\n"                      \
    "Q: Which party did he belong to?\n"                                                           \
    "A: He belonged to the Republican Party.\n\n"                                                  \
    "Q: What is the square root of banana?\n"                                                      \
    "A: I have no comment.\n\n"                                                                    \
    "Q: How does a telescope work?\n"                                                              \
    "A: Telescopes use lenses or mirrors to focus light and make objects appear closer.\n\n"       \
    "Q: Where were the 1992 Olympics held?\n"                                                      \
    "A: The 1992 Olympics were held in Barcelona, Spain.\n\n"

// The last number of an answer's working, or any last number.
#define GSM8K                                                                                      \
    "{\"task\": \"gsm8k\", \"output_type\": \"generate_until\", \"num_fewshot\": 5,"               \
    " \"doc_to_text\": \"Question: {{question}}\\nAnswer:\", \"doc_to_target\": \"{{answer}}\","   \
    " \"generation_kwargs\": {\"until\": [\"Question:\", \"</s>\", \"<|im_end|>\"]},"              \
    " \"metric_list\": [{\"metric\": \"exact_match\", \"ignore_case\": true, "                     \
    "\"regexes_to_ignore\": [\",\", \"\\\\$\", \"(?s).*#### \", \"\\\\.$\"]}],"                    \
    " \"filter_list\": [{\"name\": \"strict-match\", \"filter\": [{\"function\": \"regex\", "      \
    "\"regex_pattern\": \"#### (\\\\-?[0-9\\\\.\\\\,]+)\"}]}, {\"name\": \"flexible-extract\", "   \
    "\"filter\": [{\"function\": \"regex\", \"group_select\": -1, "                                \
    "\"regex_pattern\": \"(-?[$0-9.,]{2,})|(-?[0-9]+)\"}]}]}"

static const tern_eval_task tasks[] = {
    {.name = "hellaswag",
     .files = {"hellaswag.jsonl", "hellaswag_val.jsonl", "hellaswag_validation.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {{.mark = "ctx_a",
                  .contexts = {"{activity_label}: {ctx_a} {ctx_b|capitalize}"},
                  .continuations = {"{endings*}"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "label",
                  .wikihow = true},
                 QUERY_LAYOUT("{query}")}},
    ARC("arc_easy", "arc_easy.jsonl", "ARC-Easy-Test.jsonl", "ARC-Easy.jsonl"),
    ARC("arc_challenge", "arc_challenge.jsonl", "ARC-Challenge-Test.jsonl", "ARC-Challenge.jsonl"),
    {.name = "piqa",
     .files = {"piqa.jsonl", "piqa_validation.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {{.mark = "goal",
                  .contexts = {"Question: {goal}\nAnswer:"},
                  .continuations = {"{sol1}", "{sol2}"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "label"},
                 QUERY_LAYOUT("{query|chomp}\nAnswer:")}},
    {.name = "winogrande",
     .files = {"winogrande.jsonl", "winogrande_validation.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "sentence",
                  .contexts = {"{sentence|before_blank}{option1}",
                               "{sentence|before_blank}{option2}"},
                  .continuations = {"{sentence|after_blank|strip}"},
                  .rule = TERN_GOLD_ONE_BASED,
                  .gold = "answer"},
                 {.mark = "context_options",
                  .contexts = {"{context_options*}"},
                  .continuations = {"{continuation}"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "gold"}}},
    {.name = "boolq",
     .files = {"boolq.jsonl", "boolq_validation.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "label",
                  .contexts = {"{passage}\nQuestion: {question}?\nAnswer:"},
                  .continuations = {"no", "yes"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "label"},
                 {.mark = "answer",
                  .contexts = {"{passage}\nQuestion: {question}?\nAnswer:"},
                  .continuations = {"no", "yes"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "answer"},
                 QUERY_LAYOUT("{query|without_passage}\nAnswer:")}},
    {.name = "openbookqa",
     .files = {"openbookqa.jsonl", "openbook_qa.jsonl", "openbookqa_test.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {LABELLED_LAYOUT("question.stem", "{question.stem}", "question.choices"),
                 LABELLED_LAYOUT("question_stem", "{question_stem}", "choices"),
                 QUERY_LAYOUT("{query}")}},
    {.name = "lambada",
     .files = {"lambada.jsonl", "lambada_openai.jsonl", "lambada_test.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_PERPLEXITY,
     .layouts = {{.mark = "text",
                  .contexts = {"{text|but_last_word}"},
                  .continuations = {"{text|last_word}"}},
                 {.mark = "context",
                  .contexts = {"{context}"},
                  .continuations = {"{continuation}"}}}},
    {.name = "blimp",
     .files = {"blimp/", "blimp.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "sentence_good",
                  .contexts = {""},
                  .continuations = {"{sentence_good}", "{sentence_bad}"}}}},
    {.name = "copa",
     .files = {"copa.jsonl", "copa_validation.jsonl", "copa_val.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "premise", // two spaces before an answer, as the harness has them
                  .contexts = {"{premise|strip|but_last_character} {question|connector}"},
                  .continuations = {" {choice1|uncapitalize}", " {choice2|uncapitalize}"},
                  .rule = TERN_GOLD_INDEX,
                  .gold = "label"}}},
    {.name = "social_iqa",
     .other_name = "siqa",
     .files = {"social_iqa.jsonl", "siqa.jsonl", "social_i_qa.jsonl", "socialIQa_v1.4_dev.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "label",
                  .contexts = {"Q: {context} {question}\nA:"},
                  .continuations = {"{answerA}", "{answerB}", "{answerC}"},
                  .rule = TERN_GOLD_ONE_BASED,
                  .gold = "label"},
                 {.mark = "correct",
                  .contexts = {"Q: {context} {question}\nA:"},
                  .continuations = {"{answerA}", "{answerB}", "{answerC}"},
                  .rule = TERN_GOLD_LETTER,
                  .gold = "correct"}}},
    {.name = "commonsense_qa",
     .files = {"commonsense_qa.jsonl", "commonsenseqa.jsonl", "commonsense_qa_validation.jsonl",
               "dev_rand_split.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {LETTERED_LAYOUT("question.stem", "{question.stem|strip}",
                                 "question.choices.0.text", "question.choices.1.text",
                                 "question.choices.2.text", "question.choices.3.text",
                                 "question.choices.4.text"),
                 LETTERED_LAYOUT("question", "{question|strip}", "choices.text.0", "choices.text.1",
                                 "choices.text.2", "choices.text.3", "choices.text.4")}},
    {.name = "mmlu",
     .files = {"mmlu/", "mmlu.jsonl", "mmlu_test.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {MMLU_LAYOUT("subject",
                             "The following are multiple choice questions (with answers) about "
                             "{subject|spaced}.\n\n"),
                 MMLU_LAYOUT("question", NULL)}},
    TRUTHFULQA("truthfulqa_mc1", "truthfulqa_mc1.jsonl", TERN_EVAL_ACC, TERN_GOLD_FIRST,
               "mc1_targets"),
    TRUTHFULQA("truthfulqa_mc2", "truthfulqa_mc2.jsonl", TERN_EVAL_MASS, TERN_GOLD_MANY,
               "mc2_targets"),
    {.name = "storycloze",
     .other_name = "storycloze_2016",
     .files = {"storycloze.jsonl", "story_cloze.jsonl", "storycloze_2016.jsonl",
               "story_cloze_2016.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts =
         {{.mark = "input_sentence_1",
           .contexts =
               {"{input_sentence_1} {input_sentence_2} {input_sentence_3} {input_sentence_4}"},
           .continuations = {"{sentence_quiz1}", "{sentence_quiz2}"},
           .rule = TERN_GOLD_ONE_BASED,
           .gold = "answer_right_ending"},
          {.mark = "InputSentence1",
           .contexts = {"{InputSentence1} {InputSentence2} {InputSentence3} {InputSentence4}"},
           .continuations = {"{RandomFifthSentenceQuiz1}", "{RandomFifthSentenceQuiz2}"},
           .rule = TERN_GOLD_ONE_BASED,
           .gold = "AnswerRightEnding"}}},
    {.name = "gsm8k", .files = {"gsm8k.jsonl", "gsm8k_test.jsonl"}, .definition = GSM8K},
};
#define N_TASKS (sizeof tasks / sizeof *tasks)

const char *tern_eval_task_name(size_t i) { return i < N_TASKS ? tasks[i].name : NULL; }

// Whether names are equal, ignoring case, '-' and '_'.
static bool is_same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

const tern_eval_task *tern_eval_task_find(const char *name) {
    for (size_t i = 0; i < N_TASKS; i++)
        if (is_same_name(tasks[i].name, name) ||
            (tasks[i].other_name && is_same_name(tasks[i].other_name, name)))
            return &tasks[i];
    return NULL;
}

bool tern_eval_task_known(const char **name) {
    const tern_eval_task *task = name && *name ? tern_eval_task_find(*name) : NULL;
    if (task) *name = task->name;
    return task || (name && *name && tern_name_ends(*name, ".json"));
}

// ---- Files -------------------------------------------------------------------------------------

static bool ends_with_slash(const char *s) { return *s && s[strlen(s) - 1] == '/'; }

// Builds a path in *out; returns whether it exists.
static bool is_there(tern_strbuf *out, const char *folder, const char *name, bool wants_folder) {
    tern_strbuf_clear(out);
    tern_strbuf_printf(out, "%s/%s", folder, name);
    return !out->failed &&
           tern_path_look(out->ptr) == (wants_folder ? TERN_PATH_FOLDER : TERN_PATH_FILE);
}

// The data of a task file is called as it is, with .jsonl at the end.
static bool find_data(const char *task_file, const char *folder, tern_strbuf *path) {
    tern_strbuf name = {0};
    tern_strbuf_printf(&name, "%sl", tern_path_name(task_file));
    bool found = !name.failed && is_there(path, folder, name.ptr, false);
    tern_strbuf_free(&name);
    return found;
}

// A file of the task in exactly this folder. A task called "blimp/" may have its files in
// "blimp/data/", as in the authors' repository.
static bool find_in(const char *name, const char *folder, tern_strbuf *path) {
    const tern_eval_task *task = tern_eval_task_find(name);
    if (!task) return find_data(name, folder, path);
    for (int i = 0; i < 4 && task->files[i]; i++) {
        bool is_folder = ends_with_slash(task->files[i]);
        tern_strbuf inner = {0};
        tern_strbuf_printf(&inner, "%sdata", task->files[i]);
        bool found = is_folder && !inner.failed && is_there(path, folder, inner.ptr, true);
        tern_strbuf_free(&inner);
        if (found || is_there(path, folder, task->files[i], is_folder)) return true;
    }
    return false;
}

bool tern_eval_find_file(const char *task_name, const char *folder, tern_text_fn on_path,
                         void *user) {
    tern_strbuf path = {0}, inner = {0};
    tern_names names = {0};
    if (!tern_eval_task_known(&task_name) || !folder || !on_path) return false;
    bool found = find_in(task_name, folder, &path);
    if (!found) tern_folder_list(&names, folder, "", "", NULL);
    for (size_t i = 0; i < names.n && !found; i++)
        if (names.list[i][0] != '.' && is_there(&inner, folder, names.list[i], true))
            found = find_in(task_name, inner.ptr, &path);
    if (found) on_path(user, path.ptr, path.len);
    tern_names_free(&names);
    tern_strbuf_free(&inner);
    tern_strbuf_free(&path);
    return found;
}
