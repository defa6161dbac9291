// Recordings in conversations. No model that is served reads sound itself, so a model that
// recognizes speech transcribes them first, away; what was said stands in their place.
#ifndef TERN_SERVE_REQUEST_SOUNDS_H
#define TERN_SERVE_REQUEST_SOUNDS_H

#include "apps/serve/request/fields.h"
#include "tern_audio.h"

struct task;

// Transcribes a sound on a task's thread; others have their turns between its pieces. Free out with
// tern_transcription_free.
tern_status sound_transcribe(struct task *by, tern_model *model, const tern_sound *sound,
                             const tern_transcribe_params *params, tern_transcription *out,
                             tern_error *err);
// Whether a part of a message is a recording: "input_audio" (OpenAI), "audio_url" (vLLM).
bool sound_is_part(tern_str type);
// Called by a handler before it reads its messages: transcribes the recordings in their contents,
// if there are any. False: it should return: it is called again when they are transcribed, or has
// been answered. messages: a list, or anything else.
bool request_hear(request *req, const fields *f, const tern_json *messages);
// What is said in that part. {NULL, 0}: nobody has transcribed it.
tern_str sound_text(const struct heard *h, const tern_json *part);
void heard_free(struct heard *h); // NULL is allowed

#endif
