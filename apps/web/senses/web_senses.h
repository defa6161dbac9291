// Open objects of a page for vision, hearing and speech, in the modules that have senses.
#ifndef TERN_APPS_WEB_SENSES_H
#define TERN_APPS_WEB_SENSES_H

#include "apps/web/web.h"

// A web_model's close_senses: closes all of them.
void web_senses_close(web_model *m);
void web_transcribers_close(const web_model *m);
void web_images_close(web_model *m);
void web_speeches_close(const web_model *m); // of the model, or of the codec

#endif
