#!/usr/bin/env python3
"""Text of the second stage, which makes a model that has read stories do what it is asked.

    recipes/stories/second.py TEXT OUT [SHARE]

TEXT is the folder that corpus.py reads. OUT gets train.jsonl and valid.jsonl: chats of one request each, or of a
passage and some questions. Only the answers are learned (`tern train --assistant-only`), and a model that learns only
those forgets how to go on with a text. So third.jsonl has some of the chats and stories that are no answers, from which
everything is learned in a few more steps. SHARE: how much of it (1.0).

    yarns.py    stories with what was asked for, by requests in many wordings
    events.py   passages put together from verbs, and questions about each part of a sentence
    leads.py    summaries: the sentence that says who does what
    pools.py    names, nouns, wishes: open classes
and, from the first stage, plots, fables, scenes, worlds, short questions and stories that were written by others.
What the model is judged by is left out.
"""
import concurrent.futures
import json
import os
import random
import re
import sys

from check import count
from chats import QUESTION_FRAMES, about_passage, asked_of, turns_of
from corpus import held_out_requests
from events import event_passage
from facts import NUMBERS, asked, capital, read_facts, short_chats
from fables import fable
from leads import short_passages, summary_chat
from plots import plot
from pools import ANIMALS, CHILD, FAMILY, MORE_ANIMALS, MORE_PEOPLE, PEOPLE, SCENERY, THINGS, Pools, mined
from questions import exchange_colours, passage_of, questions, sentences
from scenes import LISTS, scene_passage, whole_passage
from tales import MAX_STORY, chat, exchange_names, exchange_subject, forms, name_pools, synthetic, tiny_stories
from worlds import world
from yarns import OPENINGS, yarn

N_PARTS = 64        # of these, each with a seed of its own
COUNTS = {"yarns": 150000, "plots": 20000, "fables": 12000, "events": 150000, "scenes": 60000, "worlds": 20000, "short": 90000, "sums": 24000,
          "leads": 60000}
N_LEADS = 9         # of a story, with other names
MOST_STORY = 2400   # bytes of a story by others: an answer ends well within the context
VALID_EVERY = 100
N_THIRD = 700, 2000 # stories and chats of third.jsonl
FRAMES = QUESTION_FRAMES + ["{p}\n\n{q}", "{p}\n\n{q}", "{p} {q}", "{q}\n{p}", "{q}\n\n{p}", "{p}\n\nAnswer this: {q}", "Please read this.\n\n{p}\n\n{q}", "Story: {p}\n\nQ: {q}", "{p}\nQ: {q}\nA:", "Look at this text: {p} {q}",
                            "Text:\n{p}\n\nQuestion:\n{q}", "Read the story.\n\n{p}\n\n{q}", "{p}\n\nQuestion about the text: {q}", "Question: {q}\nText: {p}", "I have read this: {p}\n\nNow tell me: {q}", "{q} Here is the text: {p}",
                            "Read the passage below. {q}\n\n{p}", "Answer with a few words.\n\n{p}\n\n{q}", "Using only this text, answer: {q}\n\n{p}", "{p}\n\nMy question: {q}"]


def about(passage, known, rng):
    """A passage and up to eight questions; the first as people ask about a text, the others one by one."""
    known = asked_of(known, rng)[:rng.choice((1, 2, 3, 4, 5, 6, 8))]
    if not known:
        return None
    (first, answer), *more = known
    return turns_of([(rng.choice(FRAMES).format(p=passage, q=first), answer)] + more)


def sums(rng):
    """A little story with numbers: (question, answer)."""
    names = ["Anna", "Tom", "Lena", "Omar", "Ines", "Paul", "my sister", "my brother", "a farmer", "the baker", "I", "she", "he", "we"]
    who, thing = rng.choice(names), rng.choice(LISTS["fruits"] + LISTS["stuffs"] + LISTS["birds"] + "balls books dogs hats toys cakes eggs pens cups stars flowers trees cars fish".split())
    plural_who = who in ("I", "we")
    x, y = rng.randrange(2, 11), rng.randrange(1, 10)
    have, gets = "have" if plural_who else "has", (lambda v: v if plural_who else v + "s")
    words = rng.random() < 0.65
    show = (lambda n: NUMBERS[n] if words else str(n))
    draw = rng.random()
    question_has = f"How many {thing} {'do' if plural_who else 'does'} {who} have now?"
    if draw < 0.5:
        x, y = max(x, y), min(x, y)
        n = x - y
        text = rng.choice((f"{who} {have} {show(x)} {thing} and {gets('eat')} {show(y)}.", f"{who} {have} {show(x)} {thing} and {gets('lose')} {show(y)}.", f"There are {show(x)} {thing}. {show(y)} {'is' if y == 1 else 'are'} taken away.",
                           f"{who} {have} {show(x)} {thing}. {who} {gets('give')} away {show(y)}.", f"{who} {gets('buy')} {show(x)} {thing}, but {show(y)} of them {'is' if y == 1 else 'are'} gone.", f"{show(x)} {thing} sit on a wall. {show(y)} {'goes' if y == 1 else 'go'} away."))
        ask = rng.choice(("How many are left?", f"How many {thing} are left?", "How many remain?", "How many are there now?", f"How many {thing} are still there?"))
    else:
        n = x + y
        text = rng.choice((f"{who} {have} {show(x)} {thing} and {gets('get')} {show(y)} more.", f"{who} {gets('find')} {show(x)} {thing}, and then {show(y)} more.", f"There are {show(x)} {thing} here and {show(y)} {thing} there.",
                           f"{show(x)} {thing} are in the garden. {show(y)} more come.", f"{who} {have} {show(x)} {thing}. A friend gives {'me' if who == 'I' else 'us' if who == 'we' else 'them'} {show(y)} more."))
        ask = rng.choice(("How many are there in all?", f"How many {thing} are there altogether?", "How many is that together?", question_has, "How many are there now?", "How many in total?"))
    text = re.sub(r"(?<=\. )[a-z]", lambda m: m.group().upper(), capital(text))
    return f"{text} {ask}", capital(NUMBERS[n] if words or rng.random() < 0.2 else str(n)) + "."


def in_short(story, rng):
    """A story in some sentences: the first ones, and some of what follows."""
    first, *more = story.split("\n\n")
    begin = sentences(first)[:rng.choice((1, 2, 2, 3))]
    return " ".join(begin + [rng.choice(sentences(p) or [""]) for p in more])


KNOWN = {w.replace("-", " ").split()[-1] for w in ANIMALS + PEOPLE + MORE_ANIMALS + MORE_PEOPLE + FAMILY + CHILD + THINGS + SCENERY} | {"moon", "sun", "sea", "friend", "snow", "cake"}


def keeps_to(request, story):
    """Whether a story names each thing of its request three times, its title not counted."""
    body = story.split("\n\n", 1)[-1] if story.startswith("**") else story
    asked_for = re.split(r"\babout\b", request)[-1]
    words = [w if w in KNOWN else w[:-1] for w in re.findall(r"[a-z]+", asked_for) if w in KNOWN or w.endswith("s") and w[:-1] in KNOWN] + re.findall(r"(?:named|called) ([A-Z][a-z]+)", asked_for)
    return all(count(word, body) >= 3 for word in words)


def made_up(part, share, held_out, pools):
    """One of N_PARTS parts of what is put together."""
    rng = random.Random(7000 + part)
    n = {kind: max(1, int(count * share) // N_PARTS) for kind, count in COUNTS.items()}
    for _ in range(n["yarns"]):
        request, title, story = yarn(rng, pools)
        yield keeps_to(request, story) and chat(request, f"**{title}**\n\n{story}")
    for _ in range(n["plots"]):
        request, title, story = plot(rng)
        yield keeps_to(request, story) and chat(request, f"**{title}**\n\n{story}")
    for i in range(n["fables"]):
        request, title, story, _ = fable(rng)
        yield keeps_to(request, story) and chat(request, f"**{title}**\n\n{story}")
    for _ in range(n["events"]):
        yield about(*event_passage(rng, pools), rng)
    for _ in range(n["scenes"]):
        passage, known, *_ = scene_passage(rng) if rng.random() < 0.6 else whole_passage(rng)
        yield about(passage, known, rng)
    for i in range(n["leads"]):
        brief = summary_chat(event_passage(rng, pools)[0] if i % 3 == 0 else whole_passage(rng)[0] if i % 3 == 1 else in_short(yarn(rng, pools)[2], rng), rng)
        yield brief and chat(*brief)
    for _ in range(n["worlds"]):
        passage, known, _ = world(rng)
        yield about(passage, known, rng)
    for turns in short_chats(n["short"], held_out, rng):
        yield turns_of(turns)
    extra = [(wordings, answer + ".") for wordings, answer in read_facts("more_facts.txt")]
    for _ in range(n["short"]):
        turns = []
        for _ in range(rng.choice((1, 1, 2, 3, 4))):
            wordings, answer = rng.choice(extra)
            turns.append((asked(rng.choice(wordings), rng), answer))
        yield turns_of(turns)
    for _ in range(n["sums"]):
        question, answer = sums(rng)
        yield chat(asked(question, rng) if rng.random() < 0.2 else question, answer)


def reworded(document, rng):
    """A story's request in one of the wordings of yarns.py."""
    request, answer = (m["content"] for m in document["messages"])
    about_what = re.search(r"\babout (.*?)[.?]?$", request)
    if about_what and rng.random() < 0.7:
        story = f"a story about {about_what.group(1)}"
        said = rng.choice(OPENINGS)
        request = said.format(s=story, S=capital(story)) + ("?" if re.match("Can|Could|May|Do|Would|Will|How", said) else ".")
    return chat(request, answer)


def of_story(job):
    """All that is made of the i-th story."""
    i, request, text, pools, held_out, share = job
    rng = random.Random(90000 + i)
    made = []
    if rng.random() > share:
        return made
    if rng.random() < 0.3:
        made.append({"text": text}) # so that it still tells stories when nobody asks
    documents = [d for d in forms(request, text, pools, held_out, rng) if "messages" in d and len(d["messages"][1]["content"]) < MOST_STORY
                 and keeps_to(d["messages"][0]["content"], d["messages"][1]["content"])]
    made += [reworded(d, rng) for d in rng.sample(documents, min(2, len(documents)))]
    for _ in range(N_LEADS):
        version = exchange_subject(exchange_names(text, pools, rng), rng)
        for passage in short_passages(version, rng, 1):
            brief = summary_chat(passage, rng)
            if brief:
                made.append(chat(*brief))
    for _ in range(2):
        version = exchange_colours(exchange_subject(exchange_names(text, pools, rng), rng), rng)
        for passage in (passage_of(version, rng), *short_passages(version, rng, 1)):
            known = questions(passage, rng) if passage else []
            if known:
                made.append(about(passage, known, rng))
    return made


def of_article(job):
    i, text, share = job
    rng = random.Random(700000 + i)
    made = []
    for passage in short_passages("\n\n".join(p for p in text.split("\n\n") if not re.match(r"\*\*|#|[*+-] |\d+\.", p.strip())), rng, 2 if rng.random() < share else 0):
        brief = summary_chat(passage, rng)
        if brief and "*" not in passage:
            made.append(chat(*brief))
    return made


def of_part(job):
    return list(made_up(*job))


def write_third(out, stories):
    """A few stories that are no answers, and every so many of the chats."""
    rng = random.Random(31)
    with open(f"{out}/train.jsonl", encoding="utf-8") as file:
        chats = [line for line in file if not line.startswith('{"text"')]
    begins = [t for t in stories if len(t) < MAX_STORY and t.startswith(("Once", "One ", "In a", "In the", "There"))]
    some = [json.dumps({"text": t}) + "\n" for t in rng.sample(begins, min(N_THIRD[0], len(begins)))]
    with open(f"{out}/third.jsonl", "w", encoding="utf-8") as file:
        file.writelines(some + rng.sample(chats, min(N_THIRD[1], len(chats))))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.split("\n\n")[1].strip())
    folder, out, share = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) == 4 else 1.0
    held_out = held_out_requests()
    stories = list(synthetic(f"{folder}/snakes_synthetic", "stories"))
    stories += [(None, t) for t in tiny_stories(f"{folder}/tinystories/tiny_stories_944k.txt")]
    seen = set()
    stories = [s for s in stories if not (s[1] in seen or seen.add(s[1]))]
    pools = name_pools([t for _, t in stories])
    names, nouns = mined(t for _, t in stories)
    words = Pools(names, nouns)
    articles = [text for _, text in synthetic(f"{folder}/snakes_synthetic", "textbook")]
    os.makedirs(out, exist_ok=True)
    files = {k: open(f"{out}/{k}.jsonl", "w", encoding="utf-8") for k in ("train", "valid")}
    n = 0
    with concurrent.futures.ProcessPoolExecutor() as workers:
        for jobs, work in (([(i, r, t, pools, held_out, share) for i, (r, t) in enumerate(stories)], of_story),
                           ([(i, t, share) for i, t in enumerate(articles)], of_article),
                           ([(part, share, held_out, words) for part in range(N_PARTS)], of_part)):
            for made in workers.map(work, jobs, chunksize=1 if work is of_part else 64):
                for document in made:
                    if not document or "messages" in document and document["messages"][0]["content"] in held_out:
                        continue
                    n += 1
                    files["valid" if n % VALID_EVERY == 0 else "train"].write(json.dumps(document) + "\n")
    for file in files.values():
        file.close()
    write_third(out, [text for _, text in stories])
    print(f"{len(stories)} stories, {len(articles)} explanations, {len(names)} names, {len(nouns)} nouns: {n} documents")


if __name__ == "__main__":
    main()
