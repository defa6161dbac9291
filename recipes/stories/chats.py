"""Chats of the corpus that are not stories: questions about a passage, summaries, short answers, continuations."""
import random
import re

from tales import chat, exchange_names, exchange_subject
from fables import fable
from facts import asked, short_chats
from questions import exchange_colours, passage_of, questions, sentences
from plots import plot
from scenes import scene_passage, whole_passage
from worlds import summary, world

N_PASSAGES = 3      # of a story, each time with other names, animals and colours
N_WORLDS = 100000   # so many that each is read once or twice: what is new cannot be known by heart
N_SCENES = 360000
N_WHOLE = 160000
N_FABLES = 60000
N_PLOTS = 150000
N_SHORT = 300000
N_PARTS = 48        # of these, each with a seed of its own
CONTINUED = 0.15    # of the stories

ONE_SENTENCE = ["Summarise the following text in one sentence. Answer with the summary alone.", "Sum this up in one sentence.",
                "Summarize this in one sentence:", "Summarize the text in one sentence.", "What is this about, in one sentence?",
                "Write a summary of one sentence.", "Give me a one-sentence summary."]
TWO_SENTENCES = ["Summarise the following text in 2 sentences. Answer with the summary alone.", "Summarize this.",
                 "Summarize this paragraph:", "Summarise this text.", "Sum up this paragraph.", "Write a short summary.",
                 "Summarize the following text:", "Give me a short summary of this:", "Sum this up, please.",
                 "Can you summarize this?", "Summarize this story.", "What happens in this story?", "TL;DR"]
QUESTION_FRAMES = ["{p} {q}", "{p}\n{q}", "Text: {p}\nQuestion: {q}", "Passage: {p}\n\nQuestion: {q}\nAnswer:", "Read this: {p}\n\n{q}", "\"{p}\" {q}",
                   "Read the passage and answer the question.\n\nPassage: {p}\n\nQuestion: {q}", "{p}\n\nQuestion: {q}", "Context: {p}\n\nQuestion: {q}",
                   "Question: {q}\n\n{p}", "{q} {p}", "Here is a short text.\n\n{p}\n\n{q}", "Use this text to answer: {p}\n\n{q}", "{p}\n\nFrom the text: {q}",
                   "{p}\n\n{q}", "{p}\n\n{q}", "{p} {q}", "{q}\n\n{p}", "Read this text and answer the question.\n\n{p}\n\n{q}",
                   "Text: {p}\n\nQuestion: {q}", "Answer the question about the text.\n\n{p}\n\n{q}", "Here is a text: {p}\n\n{q}"]
SUMMARY_FRAMES = ["{q}\n\n{p}", "{q}\n\n{p}", "{q} {p}", "{p}\n\n{q}"]
CONTINUE = ["Continue this story:", "Go on with this story:", "Finish this story:", "How does this story go on?", "Continue the story."]


def turns_of(turns):
    return {"messages": [{"role": role, "content": text} for pair in turns for role, text in zip(("user", "assistant"), pair)]}


def about_passage(passage, known, brief, rng):
    """One chat about a passage: a summary, or questions, or questions and then a summary. None if there are none.

    known: [(question, answer)]; brief: a function of the number of sentences that returns the summary, or None."""
    n = rng.choice((1, 2, 2))
    asked = (rng.choice(ONE_SENTENCE if n == 1 else TWO_SENTENCES), brief(n)) if brief else None
    some = known[:rng.choice((1, 1, 2, 3, 4, 6))]
    if asked and (rng.random() < 0.25 or not some):
        first, *more = [asked] + some[:3]
        frames = SUMMARY_FRAMES
    elif some:
        first, *more = some
        if asked and rng.random() < 0.3:
            more.append((rng.choice(("Now sum it up.", "Summarize it.", "Sum up the text.", asked[0])), asked[1]))
        frames = QUESTION_FRAMES
    else:
        return None
    opening = rng.choice(frames).format(p=passage, q=first[0])
    return turns_of([(opening, first[1])] + more)


def passages(text, pools, rng):
    """Chats about the beginning of a story."""
    for _ in range(N_PASSAGES):
        version = exchange_colours(exchange_subject(exchange_names(text, pools, rng), rng), rng)
        passage = passage_of(version, rng)
        if not passage:
            return
        made = about_passage(passage, questions(passage, rng), None, rng)
        if made:
            yield made


def repeated(text, rng):
    """A sentence of a text, found by how it begins or by a word, or said again: nothing but copying."""
    passage = passage_of(text, rng)
    lines = [s for s in sentences(passage or "") if 25 < len(s) < 160 and '"' not in s]
    if len(lines) < 3:
        return
    line = rng.choice(lines)
    words = line.split()
    begin = " ".join(words[:3])
    rare = [w.strip(".,!?;:") for w in words if len(w) > 5 and passage.count(w.strip(".,!?;:")) == 1]
    ways = [(f"{rng.choice(('Repeat', 'Repeat this', 'Say again', 'Copy this sentence'))}: {line}", line)]
    if passage.count(begin) == 1:
        ways.append((f'{passage}\n\n{rng.choice(("How does the sentence go on that begins with", "Which sentence begins with"))} "{begin}"?', line))
    if rare:
        ways.append((f'{passage}\n\n{rng.choice(("Which sentence has the word", "Give me the sentence with the word"))} "{rng.choice(rare)}"?', line))
    yield chat(*rng.choice(ways))


def continued(text, rng):
    head, _, rest = text.partition("\n\n")
    if rng.random() < CONTINUED and 80 < len(head) < 800 and 200 < len(rest) < 2200:
        yield chat(f"{rng.choice(CONTINUE)}\n\n{head}", rest)


def of_article(request, text, rng):
    """Short answers from an explanation: what a thing is, and its beginning as its summary."""
    subject = re.match(r"Write an? .* about (.*)\.$", request)
    body = "\n\n".join(p for p in text.split("\n\n") if not re.match(r"\*\*|#|[*+-] |\d+\.", p.strip()))
    lines = [s for s in sentences(body) if 20 < len(s) < 260 and s.endswith(".") and "*" not in s]
    if not subject or len(lines) < 3 or not re.search(r"\b(?:is|are|was|were)\b", lines[0]):
        return
    what = re.sub(r" \(.*\)", "", subject.group(1))
    ask = rng.choice(("What is {}?", "Tell me about {} in one sentence.", "Explain in one sentence: {}", "Who or what is {}?"))
    yield chat(ask.format(what), lines[0])
    if rng.random() < 0.7:
        passage = body[:rng.choice((900, 1600, 2400))].rsplit(". ", 1)[0] + "."
        yield chat(f"{rng.choice(TWO_SENTENCES)}\n\n{passage}", " ".join(lines[:2]))


def asked_of(known, rng):
    return [(asked(q, rng) if rng.random() < 0.3 else q, answer) for q, answer in known]


def made_up(part, held_out):
    """One of N_PARTS parts of what is put together: passages from facts, fables, and short questions from tables."""
    rng = random.Random(1000 + part)
    for _ in range(N_SCENES // N_PARTS):
        passage, known, _ = scene_passage(rng)
        yield about_passage(passage, asked_of(known, rng), None, rng)
    for _ in range(N_WHOLE // N_PARTS):
        passage, known, brief = whole_passage(rng)
        yield about_passage(passage, asked_of(known, rng), brief and (lambda n: brief), rng)
    for _ in range(N_PLOTS // N_PARTS):
        request, title, story = plot(rng)
        if request not in held_out:
            yield chat(request, f"**{title}**\n\n{story}")
    for _ in range(N_WORLDS // N_PARTS):
        passage, known, (hero, deeds) = world(rng)
        yield about_passage(passage, known, lambda n: summary(hero, deeds, n), rng)
    for i in range(N_FABLES // N_PARTS):
        request, title, story, brief = fable(rng)
        if i % 2:
            yield about_passage(story, questions(story, rng), brief, rng)
        elif request not in held_out:
            yield chat(request, f"**{title}**\n\n{story}")
    for turns in short_chats(N_SHORT // N_PARTS, held_out, rng):
        yield turns_of(turns)
