"""Summaries that can be relied on: the sentence of a passage that says who does what.

A small model that is to put a passage into its own words invents. So it learns to find the lead: the first sentence that
names the one whom the passage speaks of and says more than that there was somebody; "he" or "she" at its beginning becomes
the name, and a long sentence ends where its next clause begins. Two sentences add the passage's last one.
"""
import collections
import re

from questions import sentences
from tales import NOT_NAMES

MOST_WORDS = 30
INTRODUCTION = re.compile(r"(?:Once|Long ago|In a|There|[A-Z][a-z]+) .{0,40}\b(?:there (?:was|lived)|lived|there were)\b|^(?:He|She|They|It|[A-Z][a-z]+) (?:was (?:a|an|the|very|so)|loved|liked|had|lived|is|were) ")
ASKS_ONE = ["Summarize this in one sentence", "Summarise this text in one sentence", "Sum this up in one sentence", "Sum up the text in a single sentence", "Give me a summary of one sentence", "In one sentence, what happens here",
            "What is the text about? One sentence, please", "Write a one-sentence summary", "Tell me in a sentence what happens", "One-sentence summary", "What is this story about, in one sentence", "Put this into one sentence",
            "Shorten this to one sentence", "Please summarize the following text in one sentence", "Can you sum up this text in one sentence", "What happens in the text? Answer in one sentence", "State the main point in one sentence",
            "Say in one sentence what the passage is about", "What is the main idea? One sentence", "Boil this down to one sentence", "Condense this into one sentence", "Summarise the passage in one sentence. Answer with the summary alone"]
ASKS = ["Summarize this", "Summarise this", "Summary", "Summarize", "Sum this up", "Sum it up, please", "Summarize this text", "Summarize this story", "Please summarise", "What is this about", "What is the text about", "What happens in the story",
        "Give me a short summary", "Write a short summary of this", "TL;DR", "Make this shorter", "Can you summarize this for me", "Could you give me a brief summary of this", "In short, what happens", "What's the main point of this",
        "Tell me briefly what this is about", "Shorten this", "I need a short summary of this", "Summarize the paragraph", "Summarize the following passage", "What does the passage say", "Briefly, what happened", "Make it short"]
ASKS_TWO = ["Summarise the following text in 2 sentences. Answer with the summary alone", "Summarize this in two sentences", "Give me a summary of two sentences", "Sum this up in two sentences", "In two sentences, what happens"]
QUESTIONS = re.compile(r"^(?:What|In .* what|Can|Could|Briefly, what|In short, what)")
BEFORE = ["{q}: {p}", "{q}: {p}", "{q}:\n{p}", "{q}:\n\n{p}", "{q}.\n\n{p}", "{q}. {p}", "{q}\n\n{p}", "{q}:\n\n\"{p}\"", "{q}.\n\nText: {p}", "{q}\n{p}"]
AFTER = ["{p}\n\n{q}.", "{p} {q}.", "{p}\n{q}.", "Text: {p}\n\n{q}.", "Here is a text.\n\n{p}\n\n{q}.", "{p}\n\n{q}", "Read this: {p}\n\n{q}."]


def hero_of(passage):
    """The name that the passage says most, sentence beginnings included; None if there is none."""
    counts = collections.Counter(w for w in re.findall(r"\b[A-Z][a-z]{2,}\b", passage) if w not in NOT_NAMES)
    small = set(re.findall(r"\b[a-z]+\b", passage))
    known = [(n, w) for w, n in counts.items() if w.lower() not in small and (n >= 2 or re.search(rf"[a-z,] {w}\b|^{w}\b", passage))]
    return max(known, key=lambda k: (k[0], -passage.find(k[1])))[1] if known else None


def shortened(sentence):
    """At most so many words, if a clause ends where it may be cut."""
    words = sentence.split()
    if len(words) <= MOST_WORDS - 6:
        return sentence
    for found in re.finditer(r", (?:and|but|so|because|which|who|where|when|as|until|while)\b|;| - | because | until | when | while ", sentence):
        if 8 <= len(sentence[:found.start()].split()) <= MOST_WORDS:
            return sentence[:found.start()].rstrip(",; ") + "."
    return sentence if len(words) <= MOST_WORDS else None


def lead(passage, n=1):
    """The summary of n sentences, or None."""
    lines = sentences(passage)
    if len(lines) < 3:
        return None
    hero, found = hero_of(passage), None
    if not hero:
        found = lines[0] if not re.match(r"(?:He|She|They|It|But|And|So|His|Her|Their|This|That|As|With) ", lines[0]) else None
    else:
        for i, line in enumerate(lines):
            name_first = hero in line
            follows = i > 0 and hero in lines[i - 1] and re.match(r"(?:He|She) ", line)
            if '"' in line or not (name_first or follows) or INTRODUCTION.match(line) or len(line.split()) < 5:
                continue
            found = line if name_first else re.sub(r"^(?:He|She)\b", hero, line)
            break
    if not found or '"' in found or not re.match(r"[A-Z]", found) or not found.endswith((".", "!")):
        return None
    said = shortened(found.rstrip("!.") + ".")
    if not said or hero and hero not in said:
        return None
    if n == 2 and '"' not in lines[-1] and lines[-1] != found and lines[-1].endswith((".", "!")) and len(lines[-1].split()) < 20:
        said += " " + lines[-1]
    return said if len(said.split()) <= 40 and 2.2 * len(said.split()) < len(passage.split()) else None


def summary_chat(passage, rng):
    """(request, summary), or None."""
    two = rng.random() < 0.12
    brief = lead(passage, 2 if two else 1)
    if not brief:
        return None
    ask = rng.choice(ASKS_TWO if two else ASKS_ONE if rng.random() < 0.65 else ASKS)
    frame = rng.choice(BEFORE if rng.random() < 0.65 else AFTER)
    if QUESTIONS.match(ask):
        frame = frame.replace("{q}.", "{q}?").replace("{q}:", "{q}?")
        frame = frame + "?" if frame.endswith("{q}") else frame.replace("{q}\n", "{q}?\n")
    elif rng.random() < 0.08:
        ask = ask[0].lower() + ask[1:]
    elif rng.random() < 0.06:
        ask += ", please"
    return frame.format(q=ask, p=passage), brief


def short_passages(text, rng, n):
    """Up to n runs of sentences of a text, 30 to 110 words each, in one paragraph; half of them from its beginning."""
    lines = sentences(text)
    for _ in range(n):
        want, begin = rng.randrange(35, 100), rng.randrange(max(1, len(lines) - 3)) if rng.random() < 0.6 else 0
        some, words = [], 0
        for line in lines[begin:]:
            if words and words + len(line.split()) > want + 15:
                break
            some.append(line)
            words += len(line.split())
            if words >= want:
                break
        if len(some) >= 3 and words >= 30 and not re.match(r"(?:He|She|They|It|But|And|So) |\"", some[0]) and (rng.random() < 0.35 or not any('"' in line for line in some)):
            yield " ".join(some)
